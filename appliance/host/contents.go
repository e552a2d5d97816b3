package host

import "strings"

// IsContents reports whether a name in a folder keeps the folder from being an empty one. The name
// of a temporary file, which a process writes now or has left when it was killed, does not, nor
// does that of the folder that mkfs makes.
func IsContents(name string) bool {
	return name != "lost+found" && !strings.HasPrefix(name, ".ronbox-")
}
