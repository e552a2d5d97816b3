package archive

import (
	"bytes"
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"ronbox/cmd/ronbox/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// person is a terminal with a person, who does something before the answer.
type person struct {
	*os.File
	do func()
}

func (p *person) Read(b []byte) (int, error) {
	p.do()
	return copy(b, "y\n"), nil
}

// twoLines makes an archive with two lines of a node, the older one of ten days ago, and returns the
// names of its objects.
func twoLines(t *testing.T, root string) (old []string) {
	t.Helper()
	const line1, node = "../../../engines/archive/testdata/line1", "01M8NQ8M4Y5HW9M5G2V0RVKCGH"
	was := filepath.Join(root, node, "01M8NQ8M55HV9A0ZFM86Z8VCFD")
	then := time.Now().Add(-10 * 24 * time.Hour)
	err := os.CopyFS(root, os.DirFS(line1))
	if err == nil {
		err = os.CopyFS(filepath.Join(root, node, "01M8NQ8M55HV9A0ZFM86Z8VCFE"), os.DirFS(was))
	}
	if err == nil {
		err = filepath.WalkDir(was, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			name, err := filepath.Rel(root, path)
			old = append(old, name)
			return cmp.Or(err, os.Chtimes(path, then, then))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return old
}

// Prune lists the archive again after the answer: the node may have pruned it while the question waited.
func TestPruneAsksFirst(t *testing.T) {
	root := t.TempDir()
	old := twoLines(t, root)
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	asked := false
	answers := &person{terminal, func() {
		asked = true
		if err := os.Remove(filepath.Join(root, old[0])); err != nil {
			t.Error(err)
		}
	}}
	var out bytes.Buffer
	c := &cli.App{Stdin: answers, Stdout: &out, Stderr: terminal, Now: time.Now}
	c.Flags.JSON = true
	if err := (app{c}).prune(t.Context(), place{target: "file://" + root}, "1d", false); err != nil {
		t.Fatal(err)
	}
	var doc pruneDoc
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || !asked || !slices.Equal(doc.Deleted, old[1:]) {
		t.Errorf("asked: %t, %s, %v", asked, out.String(), err)
	}
	for _, name := range old {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}
