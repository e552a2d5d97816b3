package systemd

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kept is a socket that an earlier run of this process has bound and passed on.
type Kept struct {
	net.Listener
	Bind string // the address as that run had it configured
}

// Socket is a listening socket to pass on.
type Socket struct {
	Name string // HTTPName, AdminName or PeerName
	Bind string // the configured address; "": the service manager has opened the socket
	FD   int    // a duplicate that nothing else uses or closes
}

// firstDuplicate follows the standard files.
const firstDuplicate = 3

// Duplicate returns a socket for Again with a duplicate of the descriptor of l. The socket goes on
// to listen after l is closed: connections made since wait in its queue.
func Duplicate(name, bind string, l syscall.Conn) (Socket, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return Socket{}, err
	}
	s := Socket{Name: name, Bind: bind}
	cerr := raw.Control(func(fd uintptr) {
		s.FD, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, firstDuplicate)
	})
	if cerr != nil {
		return Socket{}, cerr
	}
	return s, err
}

// Close closes the duplicate.
func (s Socket) Close() error { return unix.Close(s.FD) }

// envSockets holds the sockets that Again passes on, as a JSON list.
const envSockets = "_RONBOX_SOCKETS"

// takePassed returns the sockets that Again has passed on, and removes them from the environment.
func takePassed() (passed []Socket) {
	text := os.Getenv(envSockets)
	if text == "" || os.Unsetenv(envSockets) != nil || json.Unmarshal([]byte(text), &passed) != nil {
		return nil
	}
	return passed
}

// Resumed reports whether Again has begun this run. It returns false once Listeners was called.
func Resumed() bool { return os.Getenv(envSockets) != "" }

// Again replaces this process by a new run of the same program with the same arguments. The new
// run gets the sockets from Listeners, and env in addition to the environment of this one. Again
// ends every thread, whatever the thread does, and returns only if it fails.
func Again(sockets []Socket, env ...string) error {
	passed, err := passOn(sockets)
	if err != nil {
		return err
	}
	env = append(env, envSockets+"="+passed)
	return fmt.Errorf("exec: %w", syscall.Exec("/proc/self/exe", os.Args, environ(os.Environ(), env)))
}

// passOn lets the next run inherit the sockets and returns the value of envSockets. A socket keeps
// the number of its duplicate: the threads that still run may close any other descriptor.
func passOn(sockets []Socket) (string, error) {
	for _, s := range sockets {
		if _, err := unix.FcntlInt(uintptr(s.FD), unix.F_SETFD, 0); err != nil {
			return "", fmt.Errorf("pass on %s: %w", s.Name, err)
		}
	}
	list, err := json.Marshal(sockets)
	return string(list), err
}

// environ returns the variables of base and vars, without those of base that vars replaces.
func environ(base, vars []string) []string {
	replaced := map[string]bool{}
	for _, v := range vars {
		name, _, _ := strings.Cut(v, "=")
		replaced[name] = true
	}
	var out []string
	for _, v := range base {
		if name, _, _ := strings.Cut(v, "="); !replaced[name] {
			out = append(out, v)
		}
	}
	return append(out, vars...)
}
