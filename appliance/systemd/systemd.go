package systemd

import (
	_ "embed" // the units
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Notify sends the service manager a state such as "READY=1", or several separated by newlines. It
// does not wait for an answer.
func Notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// WatchdogInterval returns the longest time between two notifications "WATCHDOG=1" that the service
// manager accepts, or 0 if it expects none. Notify at half of that interval.
func WatchdogInterval() time.Duration {
	d, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0 // an invalid interval counts as none
	}
	return d
}

// OwnUnit returns the service unit that runs this process, or "".
func OwnUnit() string {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return ""
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return unitOf(string(groups))
}

// unitOf returns the service unit of a process with these control groups: the last part of the path
// in the hierarchy of systemd.
func unitOf(groups string) string {
	for line := range strings.Lines(groups) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		names, at, _ := strings.Cut(rest, ":")
		if name := path.Base(at); (names == "" || names == "name=systemd") && strings.HasSuffix(name, ".service") {
			return name
		}
	}
	return ""
}

// The names by which a socket unit hands over its socket (FileDescriptorName).
const (
	HTTPName  = "ronbox-http"
	AdminName = "ronbox-admin"
	PeerName  = "ronbox-peer" // of the members of a cluster
)

// network returns the kind of the socket with this name, or "" for an unknown name.
func network(name string) string {
	switch name {
	case HTTPName, PeerName:
		return "tcp"
	case AdminName:
		return "unix"
	}
	return ""
}

// Listeners returns the sockets that the service manager has opened for this process, or that Again
// has passed on as Kept, by name. A second call returns none. If a socket has an unknown name or
// the wrong kind, does not listen, or if two have the same name, Listeners closes all and returns
// an error: a node must neither ignore a socket nor treat TCP clients as peers of its admin socket.
func Listeners() (map[string]net.Listener, error) {
	files, passed := activation.Files(true), takePassed()
	for _, s := range passed {
		unix.CloseOnExec(s.FD)
		files = append(files, os.NewFile(uintptr(s.FD), s.Name))
	}
	named, err := inherit(files)
	for _, s := range passed {
		if l := named[s.Name]; l != nil && s.Bind != "" {
			named[s.Name] = &Kept{Listener: l, Bind: s.Bind}
		}
	}
	if err == nil {
		return named, nil
	}
	for _, l := range named {
		err = errors.Join(err, l.Close())
	}
	return nil, err
}

// inherit returns listeners for the files and closes the files.
func inherit(files []*os.File) (map[string]net.Listener, error) {
	named := map[string]net.Listener{}
	var faults []error
	for _, f := range files {
		name := f.Name()
		l, err := listener(f)
		_ = f.Close()
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("inherited socket %s: %w", name, err))
		case named[name] != nil:
			faults = append(faults, fmt.Errorf("inherited socket %s: there are two of that name", name), l.Close())
		default:
			named[name] = l
		}
	}
	return named, errors.Join(faults...)
}

// listener returns a listener for a file that has the kind its name requires and listens.
func listener(f *os.File) (net.Listener, error) {
	want := network(f.Name())
	if want == "" {
		return nil, fmt.Errorf("want %s, %s or %s as FileDescriptorName of the socket unit",
			HTTPName, AdminName, PeerName)
	}
	listens, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return nil, err
	}
	if listens == 0 {
		return nil, errors.New("it does not listen: the socket unit needs ListenStream with Accept=no")
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if got := l.Addr().Network(); got != want {
		return nil, errors.Join(fmt.Errorf("its network is %s, want %s", got, want), l.Close())
	}
	return l, nil
}

// The units, with @NAME@ in place of each value.
var (
	//go:embed ronbox.service
	service string
	//go:embed ronbox-http.socket
	httpSocket string
	//go:embed ronbox-admin.socket
	adminSocket string
	//go:embed ronbox-archive-drill.service
	drill string
	//go:embed ronbox-archive-drill.timer
	drillTimer string
)

// File names of the units.
const (
	UnitName        = "ronbox.service"
	HTTPSocketName  = "ronbox-http.socket"
	AdminSocketName = "ronbox-admin.socket"
	DrillName       = "ronbox-archive-drill.service"
	DrillTimerName  = "ronbox-archive-drill.timer"
)

// BackupDir is the folder for snapshots that the packages make. The unit may write it.
const BackupDir = "/var/backups/ronbox"

// Enable is the command that starts the units of a package, now and at each boot.
const Enable = "systemctl enable --now ronbox-http.socket ronbox-admin.socket ronbox"

// Installed reports whether systemd runs the machine and has the unit of a package. root is "/".
func Installed(root string) bool {
	exists := func(parts ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{root}, parts...)...))
		return err == nil
	}
	return exists("run/systemd/system") &&
		(exists("usr/lib/systemd/system", UnitName) || exists("etc/systemd/system", UnitName))
}

// Unit returns ronbox.service, which runs binary as user on dataDir. Both paths are absolute. A "$"
// in the name of the binary has no special meaning.
func Unit(binary, dataDir, user string) string {
	return fill(service, "@BINARY@", quote(binary), "@DATA_ARG@", dollars(quote(dataDir)), "@DATA@", quote(dataDir),
		"@USER@", plain(user), "@HOME@", homes(dataDir))
}

// HTTPSocket returns ronbox-http.socket, which opens bind before the node runs. It is needed if the
// port is below 1024 or if no connection may be refused during a restart. A host name other than
// localhost is left as it is, and systemd refuses it.
func HTTPSocket(bind string) string { return fill(httpSocket, "@BIND@", plain(stream(bind))) }

// stream formats host:port for systemd.
func stream(bind string) string {
	host, port, err := net.SplitHostPort(bind)
	switch {
	case err == nil && host == "":
		return port
	case err == nil && host == "localhost":
		return net.JoinHostPort("127.0.0.1", port)
	}
	return bind
}

// AdminSocket returns ronbox-admin.socket, which opens path, the node's uds.path, for user.
func AdminSocket(path, user string) string {
	return fill(adminSocket, "@PATH@", plain(path), "@USER@", plain(user))
}

// Drill returns the units that restore an archive each week to prove that it can be done. They read
// /etc/ronbox/drill.env, and are for another machine than the node.
func Drill(binary, user string) []File {
	return []File{
		{DrillName, fill(drill, "@BINARY@", quote(binary), "@USER@", plain(user))}, {DrillTimerName, drillTimer},
	}
}

func fill(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

// homes returns the value of ProtectHome: home directories are hidden unless the data is in one.
func homes(dataDir string) string {
	if under(dataDir, homeDirs) {
		return "read-only"
	}
	return "yes"
}

// plain removes newlines and escapes % specifiers.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	return strings.ReplaceAll(s, "%", "%%")
}

// quote quotes a value as one word of a line that is split into words.
func quote(s string) string {
	s = plain(s)
	if !strings.ContainsAny(s, " \"'\\;") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// dollars escapes "$" in a value of a command line.
func dollars(s string) string { return strings.ReplaceAll(s, "$", "$$") }
