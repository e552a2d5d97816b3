package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ronbox/appliance/systemd"
)

// entry is a tar entry that was read back.
type entry struct {
	*tar.Header
	body []byte
}

// untar reads an archive. It fails the test if the entries are not sorted, or one has another time.
func untar(t *testing.T, archive []byte) map[string]entry {
	t.Helper()
	out, names := map[string]entry{}, []string{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(made) {
			t.Errorf("%s has the time %s", h.Name, h.ModTime)
		}
		names = append(names, strings.TrimSuffix(h.Name, "/"))
		out[h.Name] = entry{h, body}
	}
	if !slices.IsSorted(names) {
		t.Errorf("the entries are not sorted: %q", names)
	}
	return out
}

func gunzip(t *testing.T, b []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if r.Name != "" || !r.ModTime.IsZero() {
		t.Errorf("the gzip header has the name %q and the time %s", r.Name, r.ModTime)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// unar reads an ar archive.
func unar(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	rest, ok := bytes.CutPrefix(b, []byte("!<arch>\n"))
	if !ok {
		t.Fatal("not an ar archive")
	}
	out := map[string][]byte{}
	for len(rest) > 0 {
		name, end := strings.TrimSpace(string(rest[:16])), string(rest[58:60])
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || end != "`\n" {
			t.Fatalf("a member's header is %q: %v", rest[:60], err)
		}
		out[name] = rest[60 : 60+size]
		rest = rest[60+size+size%2:]
	}
	return out
}

func TestTarballIsReadBack(t *testing.T) {
	r := testRelease(t, targets...)
	archive, err := r.tarball(r.binaries[2])
	if err != nil {
		t.Fatal(err)
	}
	const dir = "ronbox_1.2.3-rc.1_linux_armv7/"
	got := untar(t, gunzip(t, archive))
	for name, mode := range map[string]int64{
		"ronbox": 0o755, "LICENSE": 0o644, "README.md": 0o644, "man/": 0o755, "man/man1/ronbox-init.1": 0o644,
		"completions/_ronbox": 0o644, "systemd/ronbox.service": 0o644, "systemd/ronbox-sysusers.conf": 0o644,
		"systemd/ronbox-archive-drill.timer": 0o644,
	} {
		e, ok := got[dir+name]
		if !ok || e.Mode != mode || e.Uid != 0 || e.Gid != 0 || e.Uname != "root" {
			t.Errorf("%s: %+v, want mode %o of root", name, e.Header, mode)
		}
	}
	if b := got[dir+"ronbox"].body; string(b) != "\x7fELF for armv7" {
		t.Errorf("the binary is %q", b)
	}
	if u := string(got[dir+"systemd/ronbox.service"].body); !strings.Contains(u, "ExecStart=/usr/local/bin/ronbox serve") {
		t.Errorf("the unit does not start the binary of /usr/local:\n%s", u)
	}
}

func TestDebIsReadBack(t *testing.T) {
	r := testRelease(t, targets...)
	archive, err := r.deb(r.binaries[2])
	if err != nil {
		t.Fatal(err)
	}
	members := unar(t, archive)
	if string(members["debian-binary"]) != "2.0\n" {
		t.Errorf("the format is %q", members["debian-binary"])
	}
	control := untar(t, gunzip(t, members["control.tar.gz"]))
	for _, want := range []string{
		"Package: ronbox\n", "Version: 1.2.3~rc.1\n", "Architecture: armhf\n", "Maintainer: Ann <ann@example.org>\n",
	} {
		if !strings.Contains(string(control["./control"].body), want) {
			t.Errorf("control lacks %q:\n%s", want, control["./control"].body)
		}
	}
	for _, script := range []string{"./postinst", "./prerm", "./postrm"} {
		if control[script].Header == nil || control[script].Mode != 0o755 {
			t.Errorf("%s: %+v", script, control[script].Header)
		}
	}
	data := untar(t, gunzip(t, members["data.tar.gz"]))
	for _, name := range []string{systemd.UnitName, systemd.DrillName, systemd.DrillTimerName} {
		if e := data["./usr/lib/systemd/system/"+name]; e.Header == nil || e.Mode != 0o644 {
			t.Errorf("%s: %+v", name, e.Header)
		}
	}
	for name, want := range map[string]string{
		"./usr/bin/ronbox": "\x7fELF for armhf", "./usr/share/doc/ronbox/copyright": debCopyright,
	} {
		if string(data[name].body) != strings.Replace(want, "armhf", "armv7", 1) {
			t.Errorf("%s is %q", name, data[name].body)
		}
	}
	if page := gunzip(t, data["./usr/share/man/man1/ronbox.1.gz"].body); string(page) != ".TH" {
		t.Errorf("the manual page is %q", page)
	}
	var digests strings.Builder
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if e := data[name]; e.Typeflag == tar.TypeReg {
			fmt.Fprintf(&digests, "%x  %s\n", md5.Sum(e.body), strings.TrimPrefix(name, "./"))
		}
	}
	if digests.String() != string(control["./md5sums"].body) {
		t.Errorf("md5sums is\n%s, want\n%s", control["./md5sums"].body, digests.String())
	}
}

// The scripts create the directory and the user that the unit names, and delete the directory only
// if they are asked to.
func TestScriptsMatchTheUnit(t *testing.T) {
	for name, script := range map[string][]byte{"postinst": postinst, "prerm": prerm, "postrm": postrm} {
		parse := exec.CommandContext(t.Context(), "sh", "-n", filepath.Join("package", name))
		if out, err := parse.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if name != "prerm" && !strings.Contains(string(script), "data="+dataDir+"\n") {
			t.Errorf("%s is for another directory than %s", name, dataDir)
		}
		if name != "prerm" && !strings.Contains(string(script), "backups="+systemd.BackupDir+"\n") {
			t.Errorf("%s is for another folder than %s", name, systemd.BackupDir)
		}
		for line := range strings.Lines(string(script)) {
			if strings.Contains(line, "rm -rf") && name != "postrm" {
				t.Errorf("%s deletes: %s", name, line)
			}
		}
	}
	for _, want := range []string{systemd.UnitName, "getent passwd " + systemd.SystemUser, "systemd-sysusers ronbox.conf",
		systemd.Enable + "\n"} {
		if !strings.Contains(string(postinst), want) {
			t.Errorf("postinst lacks %q", want)
		}
	}
}
