package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

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
