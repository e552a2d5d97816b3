package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// built returns a binary as `make dist` builds it, but for its bytes.
func built(a target) binary {
	return binary{target: a, body: fmt.Appendf(nil, "\x7fELF for %s", a.arch), info: &debug.BuildInfo{
		GoVersion: "go1.26.0",
		Main:      debug.Module{Path: "ronbox", Version: "v1.2.3-rc.1"},
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.0.0+incompatible", Sum: "h1:a="},
			{Path: "example.org/b", Version: "v0.1.0", Replace: &debug.Module{Path: "example.org/c", Version: "v0.2.0"}},
		},
		Settings: []debug.BuildSetting{
			{Key: "-trimpath", Value: "true"}, {Key: "CGO_ENABLED", Value: "0"}, {Key: "GOARCH", Value: a.goarch},
			{Key: "vcs.revision", Value: "c0ffee"}, {Key: "vcs.time", Value: "2026-11-27T22:39:23Z"},
			{Key: "vcs.modified", Value: "false"},
		},
	}}
}

// testRelease returns a release whose binaries were given in this order.
func testRelease(t *testing.T, order ...target) *release {
	t.Helper()
	r := &release{
		maintainer: "Ann <ann@example.org>",
		documents: []file{
			regular("LICENSE", []byte("free")), regular("README.md", []byte("# read")), regular("CHANGELOG.md", []byte("0.1")),
		},
		manual:      []file{regular("ronbox.1", []byte(".TH")), regular("ronbox-init.1", []byte(".TH"))},
		completions: map[string][]byte{"bash": []byte("b"), "zsh": []byte("z"), "fish": []byte("f")},
		units:       units(),
	}
	for _, a := range order {
		if err := r.add(built(a)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// made is the time of every entry.
var made = time.Date(2026, 11, 27, 22, 39, 23, 0, time.UTC)

func TestTwoRunsWriteTheSameBytes(t *testing.T) {
	first, err := testRelease(t, targets...).packages()
	if err != nil {
		t.Fatal(err)
	}
	backwards := slices.Clone(targets)
	slices.Reverse(backwards)
	second, err := testRelease(t, backwards...).packages()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first[sumsName], second[sumsName]) {
		t.Errorf("the digests differ:\n%s\n%s", first[sumsName], second[sumsName])
	}
	if lines := strings.Count(string(first[sumsName]), "\n"); lines != len(first)-1 || lines != 4*len(targets)+1 {
		t.Errorf("%d digests of %d files", lines, len(first)-1)
	}
	for name, body := range first {
		if !bytes.Equal(body, second[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestNamesHoldTheVersion(t *testing.T) {
	got, err := testRelease(t, targets...).packages()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"ronbox_1.2.3-rc.1_linux_armv7.tar.gz", "ronbox_1.2.3~rc.1_armhf.deb", "ronbox-1.2.3~rc.1-1.armv7hl.rpm",
		"ronbox_1.2.3-rc.1_linux_amd64.cdx.json", "ronbox_1.2.3-rc.1_oci.tar", sumsName,
	} {
		if got[name] == nil {
			t.Errorf("no %s", name)
		}
	}
}

func TestBinariesThatCannotBeBuiltAgainAreRefused(t *testing.T) {
	set := func(key, value string) func(*debug.BuildInfo) {
		return func(i *debug.BuildInfo) {
			for n := range i.Settings {
				if i.Settings[n].Key == key {
					i.Settings[n].Value = value
				}
			}
		}
	}
	for want, spoil := range map[string]func(*debug.BuildInfo){
		"without version control": func(i *debug.BuildInfo) { i.Main.Version = "(devel)" },
		"-buildvcs=true":          set("vcs.revision", ""),
		"modified sources":        set("vcs.modified", "true"),
		"-trimpath":               set("-trimpath", ""),
		"CGO_ENABLED=0":           set("CGO_ENABLED", "1"),
		"time of the commit":      set("vcs.time", "yesterday"),
		"of commit decade":        set("vcs.revision", "decade"),
		"it is version 1.2.4":     func(i *debug.BuildInfo) { i.Main.Version = "v1.2.4" },
	} {
		r := testRelease(t, targets[1])
		b := built(targets[0])
		spoil(b.info)
		if err := r.add(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	if err := testRelease(t, targets[0]).add(built(targets[0])); err == nil {
		t.Error("two binaries of one architecture were taken")
	}
	self, err := os.Executable() // a test binary is built without version control
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load("../..", []string{self}); err == nil {
		t.Error("a binary without a version was taken")
	}
}

func TestLicencesOfTheModulesAreCollected(t *testing.T) {
	cache, goroot := t.TempDir(), t.TempDir()
	put := func(path, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(goroot, "LICENSE"), "of Go\n")
	put(filepath.Join(goroot, "licensed.go"), "no")
	put(filepath.Join(cache, "example.org/a@v1.0.0+incompatible/LICENCE.md"), "of a")
	if _, err := notices(cache, goroot, []binary{built(targets[0])}); err == nil {
		t.Error("a module without a licence was taken")
	}
	put(filepath.Join(cache, "example.org/c@v0.2.0/COPYING"), "of c")
	got, err := notices(cache, goroot, []binary{built(targets[0]), built(targets[1])})
	const want = "== Go, LICENSE\n\nof Go\n\n== example.org/a v1.0.0+incompatible, LICENCE.md\n\nof a\n\n" +
		"== example.org/c v0.2.0, COPYING\n\nof c\n\n"
	if err != nil || string(got) != want {
		t.Errorf("%v %q, want %q", err, got, want)
	}
}

func TestFilesOfAnEarlierRunStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dist")
	if err := write(dir, map[string][]byte{"a": []byte("1")}); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, map[string][]byte{"a": []byte("2")}); err == nil {
		t.Error("the directory was written twice")
	}
}
