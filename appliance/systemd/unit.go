package systemd

import (
	_ "embed" // the units
	"net"
	"path/filepath"
	"strings"
)

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
