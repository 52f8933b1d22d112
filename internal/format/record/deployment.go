package record

import (
	"errors"
	"time"

	"e3/internal/format/codec"
)

// WorkspaceDeployment is deployment.beast2 beside the state of a workspace that machines share. It records which
// machine's package file decides the deployment, and which inputs "e3 set" has given values since. Everything else is
// in the links, each on its machine.
type WorkspaceDeployment struct {
	ID   string // by this id the machine that follows a package file recognizes its own deployment
	By   string // user@host
	At   time.Time
	File string   `beast2:",option"` // name of the package file, without its folder; "" of a registered package, which no workspace follows
	Set  []string // inputs that "e3 set" has unlinked, in order and distinct
}

var deploymentCodec = codec.New[WorkspaceDeployment]("workspace deployment")

// Encode returns the bytes of deployment.beast2.
func (d *WorkspaceDeployment) Encode() []byte { return deploymentCodec.Encode(d, 160+24*len(d.Set)) }

// DecodeWorkspaceDeployment reads deployment.beast2.
func DecodeWorkspaceDeployment(data []byte) (*WorkspaceDeployment, error) {
	return deploymentCodec.Decode(data)
}

// Check refuses inputs out of order.
func (d *WorkspaceDeployment) Check() error {
	for i := 1; i < len(d.Set); i++ {
		if d.Set[i-1] >= d.Set[i] {
			return errors.New("inputs that are set are not in order")
		}
	}
	return nil
}
