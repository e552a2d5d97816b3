package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"

	"ronbox/appliance/systemd"
)

// Places of an installed package.
const (
	binaryPath = "/usr/bin/ronbox"
	dataDir    = "/var/lib/ronbox"
	adminPath  = dataDir + "/admin.sock"
	httpBind   = "127.0.0.1:8080"
)

// target is an architecture and its names in the formats of packages.
type target struct {
	arch             string // in the name of an archive
	goarch, variant  string // of GOARCH and of the platform of an image
	debArch, rpmArch string
}

var targets = []target{
	{"amd64", "amd64", "", "amd64", "x86_64"},
	{"arm64", "arm64", "", "arm64", "aarch64"},
	{"armv7", "arm", "v7", "armhf", "armv7hl"},
}

// binary is a built ronbox.
type binary struct {
	target
	body []byte
	info *debug.BuildInfo
}

// release holds the contents of the packages.
type release struct {
	version     string // without "v"
	commit      string
	made        time.Time // of the commit
	maintainer  string
	binaries    []binary // by architecture
	documents   []file   // LICENSE, README.md, CHANGELOG.md, THIRD-PARTY.txt
	manual      []file   // ronbox.1, …
	completions map[string][]byte
	units       []systemd.File
}

// units returns the units of an installed package.
func units() []systemd.File {
	node := systemd.Install{
		Binary: binaryPath, DataDir: dataDir, Bind: httpBind, Socket: adminPath, User: systemd.SystemUser,
	}
	return append(node.Files(), systemd.Drill(binaryPath, systemd.SystemUser)...)
}

// load reads the binaries and the documents in root, and runs the binary of this machine for its
// manual pages and completions.
func load(root string, paths []string) (*release, error) {
	r := &release{units: units()}
	native := ""
	for _, path := range paths {
		b, err := readBinary(path)
		if err != nil {
			return nil, err
		}
		if err := r.add(b); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if b.goarch == runtime.GOARCH {
			native = path
		}
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		body, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		r.documents = append(r.documents, regular(name, body))
	}
	dirs, err := output("go", os.Environ(), "env", "GOMODCACHE", "GOROOT")
	if err != nil {
		return nil, err
	}
	cache, goroot, _ := strings.Cut(strings.TrimSpace(string(dirs)), "\n")
	licences, err := notices(cache, goroot, r.binaries)
	if err != nil {
		return nil, err
	}
	r.documents = append(r.documents, regular("THIRD-PARTY.txt", licences))
	if native == "" {
		return nil, fmt.Errorf("no binary for %s, which could write the manual pages", runtime.GOARCH)
	}
	return r, r.ask(native)
}

// readBinary reads a binary and its build information.
func readBinary(path string) (binary, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return binary{}, err
	}
	info, err := buildinfo.Read(bytes.NewReader(body))
	if err != nil {
		return binary{}, fmt.Errorf("%s: %w", path, err)
	}
	at := slices.IndexFunc(targets, func(a target) bool {
		return a.goarch == setting(info, "GOARCH") && (a.variant == "" || a.variant == "v"+setting(info, "GOARM"))
	})
	if at < 0 {
		return binary{}, fmt.Errorf("%s: no name for GOARCH=%s GOARM=%s", path, setting(info, "GOARCH"),
			setting(info, "GOARM"))
	}
	return binary{target: targets[at], body: body, info: info}, nil
}

// setting returns the value that Go recorded for key, or "".
func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// add adds a binary. It returns an error if the binary could not be built again from a commit, or
// differs in version or commit from those that were added before.
func (r *release) add(b binary) error {
	version, tagged := strings.CutPrefix(b.info.Main.Version, "v")
	commit := setting(b.info, "vcs.revision")
	switch {
	case !tagged || commit == "":
		return errors.New("it was built without version control: build it with -buildvcs=true in a git clone")
	case setting(b.info, "vcs.modified") != "false":
		return errors.New("it was built from modified sources: commit or stash them")
	case setting(b.info, "-trimpath") != "true" || setting(b.info, "CGO_ENABLED") != "0":
		return errors.New("it was not built with -trimpath and CGO_ENABLED=0")
	case slices.ContainsFunc(r.binaries, func(other binary) bool { return other.target == b.target }):
		return fmt.Errorf("there are two binaries for %s", b.arch)
	case r.binaries != nil && (version != r.version || commit != r.commit):
		return fmt.Errorf("it is version %s of commit %s, others are version %s of commit %s",
			version, commit, r.version, r.commit)
	}
	made, err := time.Parse(time.RFC3339, setting(b.info, "vcs.time"))
	if err != nil {
		return fmt.Errorf("time of the commit: %w", err)
	}
	r.version, r.commit, r.made = version, commit, made.UTC()
	r.binaries = append(r.binaries, b)
	slices.SortFunc(r.binaries, func(a, b binary) int { return strings.Compare(a.arch, b.arch) })
	return nil
}

// goName names the standard library among the modules of a binary.
const goName = "Go"

// notices returns the licences of Go and of the modules in the binaries, whose terms ask for a copy
// beside the program. It returns an error for a module without one.
func notices(cache, goroot string, binaries []binary) ([]byte, error) {
	dirs := map[string]string{goName: goroot}
	for _, b := range binaries {
		for _, m := range b.info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			path, err := module.EscapePath(m.Path)
			if err != nil {
				return nil, err
			}
			dirs[m.Path+" "+m.Version] = filepath.Join(cache, path+"@"+m.Version)
		}
	}
	var out []byte
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		files, err := licenceFiles(dirs[name], name != goName)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(dirs[name], f))
			if err != nil {
				return nil, err
			}
			out = fmt.Appendf(out, "== %s, %s\n\n%s\n\n", name, f, bytes.TrimSpace(text))
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s has no licence in %s", name, dirs[name])
		}
	}
	return out, nil
}

// licenceFiles returns the paths of the licences in dir, relative to it and sorted. If deep, it
// includes those of copied packages below dir.
func licenceFiles(dir string, deep bool) (out []string, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (!deep || d.Name() == "testdata"):
			return fs.SkipDir
		case !d.IsDir() && licenceName.MatchString(d.Name()) && filepath.Ext(path) != ".go":
			out = append(out, path)
		}
		return nil
	})
	return out, err
}

// licenceName matches the names of files that hold a licence or a notice.
var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.]|$)`)

// ask runs a binary for its version, its manual pages and its completions.
func (r *release) ask(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	says, err := output(path, nil, "version", "--json")
	if err != nil {
		return err
	}
	var doc struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(says, &doc); err != nil || doc.Version != r.version {
		return fmt.Errorf("%s version: got %q, its build information has %q (%v)", path, doc.Version, r.version, err)
	}
	r.completions = map[string][]byte{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if r.completions[shell], err = output(path, nil, "completion", shell); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "ronbox-man")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if _, err := output(path, nil, "man", dir); err != nil {
		return err
	}
	pages, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	for _, page := range pages {
		body, err := os.ReadFile(filepath.Join(dir, page.Name()))
		if err != nil {
			return err
		}
		r.manual = append(r.manual, regular(page.Name(), body))
	}
	return nil
}

// output returns what a command prints.
func output(path string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.Env, cmd.Stderr = append([]string{}, env...), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err)
	}
	return out, nil
}
