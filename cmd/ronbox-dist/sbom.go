package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// bom is a document of CycloneDX 1.6.
type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     bomMetadata  `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type bomMetadata struct {
	Timestamp  string     `json:"timestamp"`
	Component  component  `json:"component"`
	Properties []property `json:"properties"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Purl       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// sbom returns the list of the modules in a binary. Build information does not hold the graph of
// modules: ronbox depends on each of them.
func (r *release) sbom(b binary) ([]byte, error) {
	sum := sha256.Sum256(b.body)
	self := component{
		Type: "application", Ref: purl(b.info.Main), Name: "ronbox", Version: r.version, Purl: purl(b.info.Main),
		Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}
	doc := bom{
		Format: "CycloneDX", SpecVersion: "1.6", Serial: serial(sum), Version: 1,
		Metadata: bomMetadata{Timestamp: r.made.Format(time.RFC3339), Component: self},
	}
	for _, s := range b.info.Settings {
		doc.Metadata.Properties = append(doc.Metadata.Properties, property{"go:build:" + s.Key, s.Value})
	}
	std := debug.Module{Path: "std", Version: strings.TrimPrefix(b.info.GoVersion, "go")}
	doc.Components = append(doc.Components, library(std))
	for _, m := range b.info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		doc.Components = append(doc.Components, library(*m))
	}
	needs := dependency{Ref: self.Ref}
	for _, c := range doc.Components {
		needs.DependsOn = append(needs.DependsOn, c.Ref)
	}
	doc.Dependencies = []dependency{needs}
	out, err := json.MarshalIndent(doc, "", "  ")
	return append(out, '\n'), err
}

// library returns the component of a module. Its hash is the one of go.sum, which no algorithm of
// CycloneDX describes.
func library(m debug.Module) component {
	c := component{Type: "library", Ref: purl(m), Name: m.Path, Version: m.Version, Purl: purl(m)}
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	return c
}

// purl returns the package URL of a module.
func purl(m debug.Module) string {
	return "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
}

// serial returns a UUID of version 8, whose bits come from the digest of the binary.
func serial(sum [sha256.Size]byte) string {
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
