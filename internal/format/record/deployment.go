package record

import (
	"time"

	"e3/internal/format/beast2"
)

// WorkspaceDeployment is deployment.beast2 beside the state of a workspace that machines share. It records which
// machine's package file decides the deployment, and which inputs "e3 set" has given values since. The links, each on
// its machine, hold the rest.
type WorkspaceDeployment struct {
	ID   string // identifies, to the machine that follows a package file, its own deployment
	By   string // user@host
	At   time.Time
	File string   // name of the package file, without its folder; "" of a registered package, which no workspace follows
	Set  []string // inputs that "e3 set" has unlinked, in order and distinct
}

var deploymentSchema = newSchema("workspace deployment", func() beast2.Type {
	return beast2.Struct(beast2.F("id", beast2.String), beast2.F("by", beast2.String), beast2.F("at", beast2.DateTime),
		beast2.F("file", beast2.Option(beast2.String)), beast2.F("set", beast2.Array(beast2.String)))
})

// Encode returns the bytes of deployment.beast2.
func (d *WorkspaceDeployment) Encode() []byte {
	b := beast2.AppendString(beast2.AppendString(deploymentSchema.begin(160+24*len(d.Set)), d.ID), d.By)
	return appendStrings(appendOptString(appendTime(b, d.At), d.File), d.Set)
}

// DecodeWorkspaceDeployment reads deployment.beast2.
func DecodeWorkspaceDeployment(data []byte) (*WorkspaceDeployment, error) {
	r, err := deploymentSchema.open(data)
	if err != nil {
		return nil, err
	}
	d := &WorkspaceDeployment{ID: r.String(), By: r.String(), At: readTime(r), File: readOptString(r)}
	at := r.Offset()
	d.Set = readStrings(r)
	for i := 1; i < len(d.Set); i++ {
		if d.Set[i-1] >= d.Set[i] {
			r.Failf(at, "inputs that are set are not in order")
			break
		}
	}
	return d, deploymentSchema.done(r)
}
