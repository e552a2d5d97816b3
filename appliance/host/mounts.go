package host

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// mount is one line of /proc/self/mountinfo.
type mount struct {
	Root   string // the folder of the file system that is mounted
	Point  string // where it is mounted
	Type   string // "ext4"
	Source string // "/dev/nvme0n1p2"
	Super  string // options of the file system, comma separated
}

// parseMounts reads the text of mountinfo. Lines it does not understand are an error.
func parseMounts(r io.Reader) ([]mount, error) {
	var out []mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		m, ok := parseMount(strings.Split(lines.Text(), " "))
		if !ok {
			return nil, fmt.Errorf("mountinfo: cannot read %q", clip(lines.Text()))
		}
		out = append(out, m)
	}
	return out, lines.Err()
}

// parseMount reads "36 35 98:0 /root /point opts optional… - type source super", of which the source may be empty.
func parseMount(f []string) (mount, bool) {
	if len(f) < 9 {
		return mount{}, false
	}
	dash := 6
	for dash < len(f) && f[dash] != "-" {
		dash++
	}
	if len(f) < dash+3 {
		return mount{}, false
	}
	m := mount{Root: unescape(f[3]), Point: unescape(f[4]), Type: f[dash+1], Source: unescape(f[dash+2])}
	if len(f) > dash+3 {
		m.Super = f[dash+3]
	}
	return m, m.Point != "" && m.Type != ""
}

// unescape undoes \040 and its like, which stand for space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountOf gives the mount that holds an absolute path: the deepest one above it, of several at one place the last.
func mountOf(all []mount, name string) (mount, bool) {
	best, found := mount{}, false
	for _, m := range all {
		if within(m.Point, name) && (!found || len(m.Point) >= len(best.Point)) {
			best, found = m, true
		}
	}
	return best, found
}

// within says whether name is dir or below it.
func within(dir, name string) bool {
	dir, name = path.Clean(dir), path.Clean(name)
	return dir == "/" || name == dir || strings.HasPrefix(name, dir+"/")
}

func (h host) mounts() ([]mount, error) {
	text, err := h.text("proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(strings.NewReader(text))
}
