package systemd

import (
	_ "embed" // the units
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Notify sends the service manager a state such as "READY=1", several separated by newlines. It waits for no answer.
func Notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// WatchdogInterval is how often the service manager wants to hear "WATCHDOG=1" at least, 0 when it does not. It is
// to be fed at half of that.
func WatchdogInterval() time.Duration {
	d, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0 // a manager that cannot say its interval waits for nothing
	}
	return d
}

// The names by which a socket unit hands over its socket (FileDescriptorName).
const (
	HTTPName  = "ronbox-http"
	AdminName = "ronbox-admin"
)

// network is the kind of socket that a name stands for, "" for a name of nobody's.
func network(name string) string {
	switch name {
	case HTTPName:
		return "tcp"
	case AdminName:
		return "unix"
	}
	return ""
}

// Listeners are the sockets that the service manager has opened for this process, by name. A second call finds none. A
// socket of another name or kind, one that nobody can connect to, or two of one name, is an error that closes all: a node
// must not run deaf on what it was given, nor take clients for peers of its admin socket.
func Listeners() (map[string]net.Listener, error) {
	named, err := inherit(activation.Files(true))
	if err == nil {
		return named, nil
	}
	for _, l := range named {
		err = errors.Join(err, l.Close())
	}
	return nil, err
}

// inherit makes listeners of files and closes the files.
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

// listener makes one of a file that is of the kind its name stands for, and listens.
func listener(f *os.File) (net.Listener, error) {
	want := network(f.Name())
	if want == "" {
		return nil, fmt.Errorf("want %s or %s as FileDescriptorName of the socket unit", HTTPName, AdminName)
	}
	listens, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return nil, err
	}
	if listens == 0 {
		return nil, errors.New("it does not listen: ListenStream with Accept=no is what the socket unit needs")
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if got := l.Addr().Network(); got != want {
		return nil, errors.Join(fmt.Errorf("it is of the network %s, want %s", got, want), l.Close())
	}
	return l, nil
}

// The shipped units, with @NAME@ where a value goes.
var (
	//go:embed ronbox.service
	service string
	//go:embed ronbox-http.socket
	httpSocket string
	//go:embed ronbox-admin.socket
	adminSocket string
)

// File names of the units.
const (
	UnitName        = "ronbox.service"
	HTTPSocketName  = "ronbox-http.socket"
	AdminSocketName = "ronbox-admin.socket"
)

// Unit is ronbox.service, which runs binary as user on dataDir. Both paths are absolute. (A "$" means nothing in the name
// of a binary.)
func Unit(binary, dataDir, user string) string {
	return fill(service, "@BINARY@", quote(binary), "@DATA_ARG@", dollars(quote(dataDir)), "@DATA@", quote(dataDir),
		"@USER@", plain(user), "@HOME@", homes(dataDir))
}

// HTTPSocket is ronbox-http.socket, which opens bind before the node runs. Enable it, if the port is below 1024 or no
// connection may be refused while the node is started again. A host that is a name but not localhost is left as it is, and
// systemd, which knows no names, refuses it.
func HTTPSocket(bind string) string { return fill(httpSocket, "@BIND@", plain(stream(bind))) }

// stream writes host:port as systemd does.
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

// AdminSocket is ronbox-admin.socket, which opens path, uds.path of the node, for user.
func AdminSocket(path, user string) string {
	return fill(adminSocket, "@PATH@", plain(path), "@USER@", plain(user))
}

func fill(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

// homes says what of the homes the service sees: nothing, unless its data is there.
func homes(dataDir string) string {
	for _, home := range []string{"/home", "/root", "/run/user"} {
		if rel, err := filepath.Rel(home, dataDir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return "read-only"
		}
	}
	return "yes"
}

// plain keeps a value in its line and % from being a specifier.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	return strings.ReplaceAll(s, "%", "%%")
}

// quote makes one word of a value in a line that is split into words.
func quote(s string) string {
	s = plain(s)
	if !strings.ContainsAny(s, " \"'\\;") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// dollars keeps a value of a command line from being taken for a variable.
func dollars(s string) string { return strings.ReplaceAll(s, "$", "$$") }
