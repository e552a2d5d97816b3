package systemd

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
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
	FD   int    // a duplicate that nothing else uses
}

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

const (
	firstPassed    = 3  // SD_LISTEN_FDS_START
	firstDuplicate = 32 // above all descriptors that Again passes on

	// envBinds holds the binds of the passed sockets, as a JSON list in their order.
	envBinds = "LISTEN_FDBINDS"
)

// takeBinds returns the binds that Again has passed on, and removes them from the environment.
func takeBinds() (binds []string) {
	text := os.Getenv(envBinds)
	if text == "" || os.Unsetenv(envBinds) != nil || json.Unmarshal([]byte(text), &binds) != nil {
		return nil
	}
	return binds
}

// Resumed reports whether Again has begun this run. It returns false once Listeners was called.
func Resumed() bool { return os.Getenv(envBinds) != "" }

// Again replaces this process by a new run of the same program with the same arguments. The new
// run gets the sockets from Listeners, and env in addition to the environment of this one. Again
// ends every thread, whatever the thread does, and returns only if it fails. The descriptors from 3
// on can then no longer be used.
func Again(sockets []Socket, env ...string) error {
	vars, err := passOn(sockets)
	if err != nil {
		return err
	}
	vars = append(vars, env...)
	return fmt.Errorf("exec: %w", syscall.Exec("/proc/self/exe", os.Args, environ(os.Environ(), vars)))
}

// passOn moves the sockets to the descriptors from 3 on and returns the variables that name them.
func passOn(sockets []Socket) (vars []string, err error) {
	names, binds := []string{}, []string{}
	for i, s := range sockets {
		if err := unix.Dup3(s.FD, firstPassed+i, 0); err != nil {
			return nil, fmt.Errorf("pass on %s: %w", s.Name, err)
		}
		names, binds = append(names, s.Name), append(binds, s.Bind)
	}
	list, err := json.Marshal(binds)
	return []string{
		"LISTEN_PID=" + strconv.Itoa(os.Getpid()),
		"LISTEN_FDS=" + strconv.Itoa(len(sockets)),
		"LISTEN_FDNAMES=" + strings.Join(names, ":"),
		envBinds + "=" + string(list),
	}, err
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
