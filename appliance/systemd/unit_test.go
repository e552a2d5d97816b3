package systemd

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func shipped() map[string]string {
	return map[string]string{
		UnitName:        Unit("/usr/bin/ronbox", "/var/lib/ronbox", "ronbox"),
		HTTPSocketName:  HTTPSocket("127.0.0.1:8080"),
		AdminSocketName: AdminSocket("/var/lib/ronbox/admin.sock", "ronbox"),
	}
}

func TestUnitsAreGolden(t *testing.T) {
	for name, got := range shipped() {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || got != string(want) {
			t.Errorf("%s differs from %s (%v), see go test -update:\n%s", name, path, err, got)
		}
	}
}

// The rules of the stop and of the return that the node is built on.
func TestUnitKeepsTheNodesPromises(t *testing.T) {
	unit := shipped()[UnitName]
	for _, line := range []string{
		"Type=notify", "WatchdogSec=30", "TimeoutStopSec=15", "Restart=on-failure", "RestartPreventExitStatus=65 77 78",
		"StartLimitIntervalSec=0", "RestartSec=5", "SuccessExitStatus=10", "SystemCallErrorNumber=EPERM", "LimitMEMLOCK=infinity", "ExecStart=/usr/bin/ronbox serve --data-dir /var/lib/ronbox",
	} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	for name, text := range shipped() {
		if strings.Contains(text, "@") && name != UnitName || strings.Count(text, "@") != strings.Count(text, "@system-service") {
			t.Errorf("%s has a place left unfilled", name)
		}
	}
}

// systemd itself reads the units and has nothing to say, whatever the paths look like.
func TestSystemdVerifiesTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil && os.Getenv("CI") == "" {
		t.Log(err, "install the package systemd to have the units verified")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "ron box$1%n")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	units := map[string]string{
		UnitName:        Unit(binary, filepath.Join(dir, `data "1" \%i`), "daemon"),
		HTTPSocketName:  HTTPSocket("[::1]:8080"),
		AdminSocketName: AdminSocket("/run/ronbox/admin.sock", "daemon"),
	}
	args := []string{"verify", "--man=no"}
	for name, text := range units {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) || strings.Contains(string(out), "ronbox") {
		t.Errorf("systemd-analyze: %v\n%s\n%s", err, out, units[UnitName])
	}
}

func TestNoValueAddsALine(t *testing.T) {
	clean := Unit("/a", "/b", "c")
	for _, evil := range []string{"x\nExecStartPre=/bin/evil", "x\r\n[Service]", "x\x00y"} {
		for _, got := range []string{Unit(evil, "/b", "c"), Unit("/a", evil, "c"), Unit("/a", "/b", evil)} {
			if strings.Count(got, "\n") != strings.Count(clean, "\n") {
				t.Errorf("%q adds a line:\n%s", evil, got)
			}
		}
		if strings.Count(HTTPSocket(evil)+AdminSocket(evil, evil), "\n") != strings.Count(HTTPSocket("")+AdminSocket("", ""), "\n") {
			t.Errorf("%q adds a line to a socket", evil)
		}
	}
}

func TestSocketUnitTakesEveryBind(t *testing.T) {
	for bind, want := range map[string]string{
		"127.0.0.1:8080": "127.0.0.1:8080", "[::1]:8080": "[::1]:8080", ":8080": "8080", "localhost:80": "127.0.0.1:80",
	} {
		if got := HTTPSocket(bind); !strings.Contains(got, "\nListenStream="+want+"\n") {
			t.Errorf("%s gives %s", bind, got)
		}
	}
}

func TestHomesStayShutUnlessTheDataIsThere(t *testing.T) {
	for dir, want := range map[string]string{
		"/var/lib/ronbox": "yes", "/home/a/data": "read-only", "/root": "read-only", "/homestead": "yes", "/run/user/1": "read-only",
	} {
		if got := homes(dir); got != want {
			t.Errorf("%s: ProtectHome=%s, want %s", dir, got, want)
		}
	}
}
