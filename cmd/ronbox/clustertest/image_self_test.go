package clustertest

import (
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
)

// traced is the trace of a program that replaces a file, overwrites it while it is synced, and
// removes it. The images of a line are those of a power cut after it.
var traced = []struct {
	line   string
	images []string // possible contents of a.tmp and a
}{
	{`1 openat(AT_FDCWD</d>, "a.tmp", O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0600) = 3</d/a.tmp>`, []string{"-,-", ",-"}},
	{`1 write(3</d/a.tmp>, "old", 3)  = 3`, []string{"-,-", ",-", "old,-"}},
	{`1 fsync(3</d/a.tmp>)            = 0`, []string{"-,-", "old,-"}},
	{`1 renameat(AT_FDCWD</d>, "a.tmp", AT_FDCWD</d>, "/d/a") = 0`, []string{"-,-", "old,-", "-,old"}},
	{`1 unlinkat(AT_FDCWD</d>, "b", 0) = -1 ENOENT (No such file or directory)`, []string{"-,-", "old,-", "-,old"}},
	{`1 fsync(4</d>)                  = 0`, []string{"-,old"}},
	{`2 pwrite64(3</d/a>, "new", 3, 0 <unfinished ...>`, []string{"-,old", "-,new"}},
	{`1 fdatasync(3</d/a> <unfinished ...>`, []string{"-,old", "-,new"}},
	{`2 <... pwrite64 resumed>)         = 3`, []string{"-,old", "-,new"}},
	{`1 <... fdatasync resumed>)        = 0`, []string{"-,old", "-,new"}},
	{`1 fdatasync(3</d/a>)            = 0`, []string{"-,new"}},
	{`2 +++ exited with 0 +++`, []string{"-,new"}},
	{`1 ftruncate(3</d/a>, 1)         = 0`, []string{"-,new", "-,n"}},
	{`1 pwrite64(3</d/a>, "ot", 2, 1)         = 2`, []string{"-,new", "-,n", "-,not"}},
	{`1 unlinkat(AT_FDCWD</d>, "a", 0) = 0`, []string{"-,new", "-,n", "-,not", "-,-"}},
	{`1 fsync(4</d> <unfinished ...>`, []string{"-,new", "-,n", "-,not", "-,-"}},
}

// content returns the contents of a.tmp and a; "-": the file does not exist.
func content(t *testing.T, dir string) string {
	t.Helper()
	out := []string{"-", "-"}
	for i, name := range []string{"a.tmp", "a"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			out[i] = string(raw)
		}
	}
	return strings.Join(out, ",")
}

// An image has all synced changes, and images of one moment differ in any subset of the others. The
// image of a disk that lies about syncs has none.
func TestImagesLoseUnsyncedChanges(t *testing.T) {
	t.Parallel()
	d := rand.New(rand.NewPCG(hosttest.Seed(t, "CLUSTER_SEED"), 0))
	quoted := regexp.MustCompile(`"([^"]*)"|<(/[^>]*)>`)
	var trace strings.Builder
	for at, step := range traced {
		trace.WriteString(quoted.ReplaceAllStringFunc(step.line, func(s string) string {
			return s[:1] + inHex(strings.Trim(s, `"<>`)) + s[len(s)-1:]
		}) + "\n")
		dir := t.TempDir()
		file, base, image := filepath.Join(dir, "trace"), filepath.Join(dir, "base"), filepath.Join(dir, "image")
		must(t, os.WriteFile(file, []byte(trace.String()), 0o600))
		must(t, os.Mkdir(base, 0o700))
		k, err := newDisk("/d", base)
		must(t, err)
		must(t, k.read(file))
		seen := map[string]bool{}
		for range 300 {
			must(t, k.image(at+1, fair(d), image))
			seen[content(t, image)] = true
		}
		want := slices.Sorted(slices.Values(step.images))
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
			t.Errorf("after %s: %q, want %q", step.line, got, want)
		}
		must(t, k.image(at+1, lying, image))
		if got := content(t, image); got != "-,-" {
			t.Errorf("after %s a lying disk has kept %q", step.line, got)
		}
	}
}

// inHex returns a text as strace prints it with -xx.
func inHex(text string) string {
	raw := []byte(text)
	var out strings.Builder
	for _, b := range raw {
		out.WriteString(`\x` + hex.EncodeToString([]byte{b}))
	}
	return out.String()
}
