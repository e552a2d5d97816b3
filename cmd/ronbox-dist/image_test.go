package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
}

func TestImageIsReadBack(t *testing.T) {
	archive, err := testRelease(t, targets...).image()
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, archive)
	blob := func(d descriptor) []byte {
		b := files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)].body
		if sum := sha256.Sum256(b); d.Digest != "sha256:"+hex.EncodeToString(sum[:]) || d.Size != len(b) {
			t.Errorf("the blob of %+v has %d bytes", d, len(b))
		}
		return b
	}
	var top, all index
	decode(t, files["index.json"].body, &top)
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3-rc.1" {
		t.Fatalf("index.json is %s", files["index.json"].body)
	}
	decode(t, blob(top.Manifests[0]), &all)
	if len(all.Manifests) != len(targets) {
		t.Fatalf("%d images, want %d", len(all.Manifests), len(targets))
	}
	for i, d := range all.Manifests {
		var m manifest
		var c imageConfig
		var run struct {
			Config struct {
				User        string
				Entrypoint  []string
				Healthcheck struct{ Test []string }
			}
		}
		decode(t, blob(d), &m)
		decode(t, blob(m.Config), &c)
		decode(t, blob(m.Config), &run)
		if *d.Platform != c.platform || c.Architecture != targets[i].goarch || c.Variant != targets[i].variant {
			t.Errorf("the platform is %+v in the index and %+v in the image", d.Platform, c.platform)
		}
		layer := gunzip(t, blob(m.Layers[0]))
		if c.RootFS.DiffIDs[0] != digestOf(layer) {
			t.Errorf("the layer is %s, not %s", digestOf(layer), c.RootFS.DiffIDs[0])
		}
		root := untar(t, layer)
		if h := root["data/"].Header; h == nil || h.Uid != imageUser || h.Gid != imageUser || h.Mode != 0o700 {
			t.Errorf("/data is %+v", h)
		}
		if h := root["tmp/"].Header; h == nil || h.Mode != 0o1777 {
			t.Errorf("/tmp is %+v", h)
		}
		if b := root[run.Config.Entrypoint[0][1:]]; b.Header == nil || b.Mode != 0o755 || len(b.body) == 0 {
			t.Errorf("the entrypoint is %+v", b.Header)
		}
		if run.Config.User != "65532:65532" || run.Config.Healthcheck.Test[1] != run.Config.Entrypoint[0] {
			t.Errorf("the container runs as %s, its check is %q", run.Config.User, run.Config.Healthcheck.Test)
		}
	}
}

func TestSBOMListsTheModules(t *testing.T) {
	r := testRelease(t, targets...)
	body, err := r.sbom(r.binaries[0])
	if err != nil {
		t.Fatal(err)
	}
	var got bom
	decode(t, body, &got)
	want := []string{
		"pkg:golang/std@1.26.0", "pkg:golang/example.org/a@v1.0.0%2Bincompatible", "pkg:golang/example.org/c@v0.2.0",
	}
	if len(got.Components) != len(want) || len(got.Dependencies[0].DependsOn) != len(want) {
		t.Fatalf("%s", body)
	}
	for i, c := range got.Components {
		if c.Purl != want[i] || got.Dependencies[0].DependsOn[i] != c.Ref {
			t.Errorf("component %d is %+v, want %s", i, c, want[i])
		}
	}
	sum := sha256.Sum256(r.binaries[0].body)
	if got.Metadata.Component.Hashes[0].Content != hex.EncodeToString(sum[:]) {
		t.Errorf("the binary is %+v", got.Metadata.Component)
	}
	other, err := r.sbom(r.binaries[1])
	if err != nil || bytes.Contains(other, []byte(got.Serial)) {
		t.Errorf("two binaries have the serial number %s: %v", got.Serial, err)
	}
}

func TestSumsAreSigned(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	public, err := keygen([]string{"ronbox.example", key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keygen([]string{"ronbox.example", key}); err == nil {
		t.Error("a key was replaced")
	}
	info, err := os.Stat(key)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v: %v", info.Mode(), err)
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	text := sums(map[string][]byte{"b": nil, "a": []byte("1")})
	signed, err := sign(key, text)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := note.Open(signed, note.VerifierList(verifier)); err != nil || n.Text != string(text) {
		t.Errorf("the note is %q: %v", signed, err)
	}
	if _, err := sign(key+"x", text); err == nil {
		t.Error("signed without a key")
	}
}
