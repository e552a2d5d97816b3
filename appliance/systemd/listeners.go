package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// The names by which a socket unit hands over its socket (FileDescriptorName).
const (
	HTTPName  = "ronbox-http"
	AdminName = "ronbox-admin"
)

// Listeners are the sockets that the service manager has opened for this process, by name. A second call finds none. A
// socket of another name, or two of one, is an error that closes all: a node must not run deaf on what it was given.
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
		l, err := net.FileListener(f)
		_ = f.Close()
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("inherited socket %s: %w", name, err))
		case name != HTTPName && name != AdminName || named[name] != nil:
			faults = append(faults, fmt.Errorf("inherited socket %s: want one %s or %s (FileDescriptorName of the socket unit)",
				name, HTTPName, AdminName), l.Close())
		default:
			named[name] = l
		}
	}
	return named, errors.Join(faults...)
}
