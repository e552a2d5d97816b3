package systemd

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
)

func TestStepsInstallTheService(t *testing.T) {
	root := Install{
		Binary:  "/usr/local/bin/ronbox",
		DataDir: "/var/lib/ronbox",
		Bind:    "127.0.0.1:8080",
		User:    SystemUser,
	}
	for _, tt := range []struct {
		doc    string
		change func(*Install)
		want   []string
	}{
		{"root", func(*Install) {}, []string{
			"install -D -m 644 /var/lib/ronbox/ronbox-sysusers.conf /etc/sysusers.d/ronbox.conf",
			"systemd-sysusers ronbox.conf",
			"chown -R ronbox:ronbox /var/lib/ronbox",
			"install -m 644 /var/lib/ronbox/ronbox.service /etc/systemd/system/ronbox.service",
			"systemctl daemon-reload",
			"systemctl enable --now ronbox.service",
			"/usr/local/bin/ronbox --data-dir /var/lib/ronbox status",
		}},
		{"another user, a low port, an odd path", func(i *Install) { i.User, i.Sudo, i.Bind, i.DataDir = "ann", true, ":80", "/srv/a b'c" }, []string{
			`sudo install -m 644 '/srv/a b'\''c/ronbox-http.socket' /etc/systemd/system/ronbox-http.socket`,
			`sudo install -m 644 '/srv/a b'\''c/ronbox.service' /etc/systemd/system/ronbox.service`,
			"sudo systemctl daemon-reload",
			"sudo systemctl enable --now ronbox-http.socket ronbox.service",
			`sudo /usr/local/bin/ronbox --data-dir '/srv/a b'\''c' status`,
		}},
	} {
		i := root
		tt.change(&i)
		if got := i.Steps(); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n%s", tt.doc, strings.Join(got, "\n"))
		}
	}
}

func TestHiddenPlacesAreRefused(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		binary, data, user string
		what               string // that is refused, "" for none
	}{
		{"/usr/bin/env", "/var/lib/ronbox", SystemUser, ""},
		{"/usr/bin/env", "/var/lib/ronbox", "ann", ""},
		{"/usr/bin/env", "/home/ann/data", "ann", ""},
		{"/usr/bin/env", "/home/ann/data", SystemUser, "data directory"},
		{"/usr/bin/env", "/tmp/data", "ann", "data directory"},
		{"/home/ann/bin/ronbox", "/var/lib/ronbox", "ann", "binary"},
		{filepath.Join("/root", "ronbox"), "/var/lib/ronbox", SystemUser, "binary"},
		{"/tmp/ronbox", "/var/lib/ronbox", SystemUser, "binary"},
		{"/usr/bin/env", "/run/ronbox", SystemUser, "data directory"},
		{"/usr/bin/env", "/run", "ann", "data directory"},
		{"/var/tmp/x/ronbox", "/var/lib/ronbox", "ann", "binary"},
		{"/dev/shm/ronbox", "/var/lib/ronbox", "ann", "binary"},
		{"/etc/passwd", "/var/lib/ronbox", SystemUser, "binary"}, // which nobody may execute
	} {
		err := Install{Binary: tt.binary, DataDir: tt.data, User: tt.user}.Check()
		place, refused := errors.AsType[*PlaceError](err)
		if refused != (tt.what != "") || refused && (place.What != tt.what || !errors.Is(err, ErrPlace)) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	if got := closedTo(filepath.Join(closed, "ronbox"), true); got != closed {
		t.Errorf("closed is %q, want %s", got, closed)
	}
}

// systemd accepts the files of an installation and creates the user.
func TestSystemdTakesTheInstallation(t *testing.T) {
	analyze, users := hosttest.Tool(t, "systemd-analyze", "systemd"), hosttest.Tool(t, "systemd-sysusers", "systemd")
	root := t.TempDir()
	binary := "/usr/local/bin/ronbox"
	write := func(name, text string, mode os.FileMode) {
		path := filepath.Join(root, name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), mode),
		); err != nil {
			t.Fatal(err)
		}
	}
	write(binary, "#!/bin/sh\n", 0o755)
	write("/bin/sh", "", 0o755)
	for _, unit := range []string{"network-online", "multi-user", "sockets", "sysinit", "basic", "shutdown", "network"} {
		write("/usr/lib/systemd/system/"+unit+".target", "[Unit]\nDescription="+unit+"\n", 0o644)
	}
	i := Install{
		Binary:  binary,
		DataDir: "/var/lib/ronbox",
		Bind:    "127.0.0.1:80",
		Socket:  "/var/lib/ronbox/admin.sock",
		User:    SystemUser,
	}
	args := []string{"verify", "--man=no", "--root=" + root}
	for _, f := range i.Files() {
		if f.Name == SysusersName {
			write("/etc/sysusers.d/ronbox.conf", f.Text, 0o644)
			continue
		}
		write("/etc/systemd/system/"+f.Name, f.Text, 0o644)
		args = append(args, filepath.Join(root, "/etc/systemd/system", f.Name))
	}
	if out, err := exec.CommandContext(t.Context(), users, "--root="+root, "ronbox.conf").CombinedOutput(); err != nil {
		t.Errorf("systemd-sysusers: %v\n%s", err, out)
	}
	passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || !strings.Contains(string(passwd), "\nronbox:") && !strings.HasPrefix(string(passwd), "ronbox:") {
		t.Errorf("no user ronbox: %v\n%s", err, passwd)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, args...).
		CombinedOutput(); err != nil ||
		strings.Contains(string(out), "ronbox") {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}
