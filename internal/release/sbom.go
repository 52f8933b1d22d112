package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
)

// A component of CycloneDX 1.5 (https://cyclonedx.org/docs/1.5/json/).
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

// billOfMaterials lists the modules that a program was built from, in the form of CycloneDX.
func billOfMaterials(program, version string) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	doc := struct {
		Format   string `json:"bomFormat"`
		Spec     string `json:"specVersion"`
		Version  int    `json:"version"`
		Metadata struct {
			Component component `json:"component"`
		} `json:"metadata"`
		Components []component `json:"components"`
	}{Format: "CycloneDX", Spec: "1.5", Version: 1}
	doc.Metadata.Component = component{"application", "e3", version, "pkg:golang/e3@" + version}
	doc.Components = []component{{"library", "stdlib", info.GoVersion, "pkg:golang/std@" + info.GoVersion}}
	for _, dep := range info.Deps {
		m := *cmp.Or(dep.Replace, dep)
		doc.Components = append(doc.Components, component{"library", m.Path, m.Version, "pkg:golang/" + m.Path + "@" + m.Version})
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	return append(text, '\n'), err
}
