package host

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// host reads the machine through a file tree, in tests a map.
type host struct {
	files fs.FS // rooted at "/"
}

func here() host { return host{files: os.DirFS("/")} }

// maxText bounds a file of /proc or /sys that is read whole: the longest, mountinfo of a busy container host, has a few hundred KiB.
const maxText = 4 << 20

// text is the content of a file, without the space around it. path has no leading "/".
func (h host) text(path string) (string, error) {
	b, err := fs.ReadFile(h.files, path)
	if err != nil {
		return "", err
	}
	if len(b) > maxText {
		return "", fmt.Errorf("/%s has more than %d bytes", path, maxText)
	}
	return strings.TrimSpace(string(b)), nil
}

// number reads a file that holds one whole number.
func (h host) number(path string) (int64, error) {
	s, err := h.text(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/%s: %q is not a number", path, clip(s))
	}
	return n, nil
}

// clip shortens a text for a message.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
