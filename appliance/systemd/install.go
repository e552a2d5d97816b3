package systemd

import (
	_ "embed" // the file of sysusers.d
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ronbox/appliance/unit"
)

// SysusersName is the name of the file from which systemd-sysusers creates the service's user.
const SysusersName = "ronbox-sysusers.conf"

// SystemUser is the user of a service that root installs.
const SystemUser = "ronbox"

//go:embed ronbox-sysusers.conf
var sysusers string

// Install describes a node that will run as a service. All paths are absolute and without symbolic
// links.
type Install struct {
	Binary  string
	DataDir string
	Bind    string // server.bind
	Socket  string // path of the admin socket
	User    string // user that runs the node; if it is SystemUser, Steps creates it
	Sudo    bool   // the steps are for a shell of another user than root
}

// File is one file of an installation.
type File struct{ Name, Text string }

// Files returns the files that Steps installs. They are written to the data directory first.
func (i Install) Files() []File {
	out := []File{
		{UnitName, Unit(i.Binary, i.DataDir, i.User)},
		{HTTPSocketName, HTTPSocket(i.Bind)},
		{AdminSocketName, AdminSocket(i.Socket, i.User)},
	}
	if i.User == SystemUser {
		out = append(out, File{SysusersName, sysusers})
	}
	return out
}

// Steps returns the commands that install and start the service, in order. A port below 1024 needs
// the socket unit, because the service has no privileges.
func (i Install) Steps() (steps []string) {
	const unitDir = "/etc/systemd/system"
	add := func(words ...string) {
		if i.Sudo {
			words = append([]string{"sudo"}, words...)
		}
		steps = append(steps, unit.Shell(words...))
	}
	if i.User == SystemUser {
		add("install", "-D", "-m", "644", filepath.Join(i.DataDir, SysusersName), "/etc/sysusers.d/ronbox.conf")
		add("systemd-sysusers", "ronbox.conf")
		add("chown", "-R", SystemUser+":"+SystemUser, i.DataDir)
	}
	units := []string{UnitName}
	if _, port, err := net.SplitHostPort(i.Bind); err == nil {
		if n, err := strconv.Atoi(port); err == nil && n > 0 && n < 1024 {
			units = []string{HTTPSocketName, UnitName}
		}
	}
	for _, u := range units {
		add("install", "-m", "644", filepath.Join(i.DataDir, u), filepath.Join(unitDir, u))
	}
	add("systemctl", "daemon-reload")
	add(append([]string{"systemctl", "enable", "--now"}, units...)...)
	add(i.Binary, "--data-dir", i.DataDir, "status")
	return steps
}

// ErrPlace is returned for a path that the service could not see or access.
var ErrPlace = errors.New("no place for a service")

// PlaceError names a path that the service could not see or access. It matches ErrPlace.
type PlaceError struct {
	What string // "binary" or "data directory"
	Path string
	Why  string
}

func (e *PlaceError) Error() string { return fmt.Sprintf("the %s %s: %s", e.What, e.Path, e.Why) }

// Is reports whether target is ErrPlace.
func (e *PlaceError) Is(target error) bool { return target == ErrPlace }

// Check returns a PlaceError if the unit would hide the binary or the data directory, or if the
// user could not access them.
func (i Install) Check() error {
	const binary, data = "binary", "data directory"
	for _, p := range []struct{ what, path string }{{binary, i.Binary}, {data, i.DataDir}} {
		if under(p.path, temporary) {
			return &PlaceError{
				p.what,
				p.path,
				"temporary files are hidden from the service (PrivateTmp) and removed at a boot",
			}
		}
		if under(p.path, volatile) && !under(p.path, mounts) && !under(p.path, homeDirs) {
			return &PlaceError{p.what, p.path, "it is on a file system in memory, which loses its files at a reboot"}
		}
		if under(p.path, homeDirs) && (p.what == binary || i.User == SystemUser) {
			return &PlaceError{p.what, p.path, "home folders are hidden from the service (ProtectHome)"}
		}
		if i.User != SystemUser {
			continue // that user runs it now
		}
		if closed := closedTo(p.path, p.what == binary); closed != "" {
			return &PlaceError{p.what, p.path, fmt.Sprintf("the user %s cannot pass %s", i.User, closed)}
		}
	}
	return nil
}

// temporary directories are private to a service or cleared at boot; homeDirs are hidden by the
// unit.
var (
	temporary = []string{"/tmp", "/var/tmp", "/dev", "/proc"}
	homeDirs  = []string{"/home", "/root", "/run/user"}
	volatile  = []string{"/run", "/var/run"}
	mounts    = []string{"/run/media"} // disks that are mounted for a user
)

// under reports whether path is one of the directories or inside one.
func under(path string, dirs []string) bool {
	for _, dir := range dirs {
		if rel, err := filepath.Rel(dir, path); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return true
		}
	}
	return false
}

// closedTo returns the innermost part of path that other users cannot traverse, or "". If whole is
// set, path itself must be executable. A part that does not exist is not closed.
func closedTo(path string, whole bool) string {
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		counts := at != path || whole
		if counts && (errors.Is(err, fs.ErrPermission) || err == nil && info.Mode().Perm()&0o001 == 0) {
			return at
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}
