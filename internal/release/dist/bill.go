package main

import (
	"bytes"
	"debug/buildinfo"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bill writes the list of the modules that a program was built of, as the program itself says,
// in CycloneDX's format.
func (r *release) bill(p platform) error {
	info, err := buildinfo.ReadFile(r.binaries[p])
	if err != nil {
		return err
	}
	main := component(&info.Main)
	main.Type, main.Version, main.PackageURL, main.BOMRef = cdx.ComponentTypeApplication, r.version, purl(info.Main.Path, r.version), purl(info.Main.Path, r.version)
	parts := []cdx.Component{{
		Type: cdx.ComponentTypePlatform, Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"),
		BOMRef: purl("stdlib", info.GoVersion), PackageURL: purl("stdlib", strings.TrimPrefix(info.GoVersion, "go")),
	}}
	refs := []string{parts[0].BOMRef}
	for _, dep := range info.Deps {
		c := component(dep)
		if dep.Replace != nil && strings.HasPrefix(dep.Replace.Path, ".") {
			// A module of this tree has the version of the release.
			c = component(&debug.Module{Path: dep.Path, Version: r.version})
		}
		parts = append(parts, c)
		refs = append(refs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &main}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var b bytes.Buffer
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return r.file("fencepost_"+r.version+"_"+p.os+"_"+p.arch+".cdx.json", b.Bytes())
}

func component(m *debug.Module) cdx.Component {
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl(m.Path, m.Version), BOMRef: purl(m.Path, m.Version)}
	if m.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}

// purl names a version of a Go module, as lists of vulnerabilities do.
func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }
