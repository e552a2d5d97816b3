package main

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// planted is a module whose packages have the same code, and tests of different worth.
func planted(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module planted\n\ngo 1.26\n",
		"weak/fits.go":    fits,
		"weak/f_test.go":  looks + "func TestFits(t *testing.T) {\n\tif !Fits(1, 3) || Fits(5, 3) {\n\t\tt.Error(1)\n\t}\n}\n",
		"good/fits.go":    fits,
		"good/f_test.go":  looks + "func TestFits(t *testing.T) {\n\tif !Fits(3, 3) || Fits(4, 3) {\n\t\tt.Error(1)\n\t}\n}\n",
		"bad/fits.go":     fits,
		"bad/f_test.go":   looks + "func TestFits(t *testing.T) { t.Error(Fits(1, 2)) }\n",
		"odd/fits.go":     fits,
		"odd/f_test.go":   odd,
		"none/fits.go":    fits,
		"loop/loop.go":    "package fits\n\nfunc Drain(more func() bool) {\n\tfor more() {\n\t}\n}\n",
		"loop/f_test.go":  looks + "func TestDrain(t *testing.T) { Drain(func() bool { return false }) }\n",
		"eats/eats.go":    "package fits\n\nfunc Fill(full func() bool, n int) (all [][]byte) {\n\tfor full() {\n\t\tall = append(all, make([]byte, n))\n\t}\n\treturn all\n}\n",
		"eats/f_test.go":  looks + "func TestFill(t *testing.T) {\n\tfor _, b := range Fill(func() bool { return false }, 1<<26) {\n\t\tclear(b)\n\t}\n}\n",
		"words/words.go":  "package fits\n\nfunc Join(a, b string) string { return a + b }\n",
		"words/f_test.go": looks + "func TestJoin(t *testing.T) {\n\tif Join(`a`, `b`) != `ab` {\n\t\tt.Error(1)\n\t}\n}\n",
		"guard/doc.go":    "package guard\n",
		"guard/f_test.go": "package guard\n\nimport (\n\t\"testing\"\n\n\t\"planted/weak\"\n)\n\nfunc TestGuard(t *testing.T) {\n\tif !fits.Fits(3, 3) {\n\t\tt.Error(1)\n\t}\n}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	fits  = "package fits\n\nfunc Fits(n, limit int) bool { return n <= limit }\n"
	looks = "package fits\n\nimport \"testing\"\n\n"
)

// odd is a test that fails the second time that it is run in all, and never again.
const odd = `package fits

import (
	"os"
	"testing"
)

func TestFits(t *testing.T) {
	f, err := os.OpenFile(os.Getenv("PLANTED_RUNS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Stat(); err != nil || s.Size() == 2 {
		t.Fatal(err)
	}
	Fits(1, 2)
}
`

// tree is what a folder holds.
func tree(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		h.Write([]byte(path))
		h.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(h.Sum(nil))
}

// mutate runs the command over the planted module. It must leave that as it is, and nothing beside it.
func mutate(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir, scratch := planted(t), t.TempDir()
	t.Setenv("TMPDIR", scratch)
	t.Setenv("GOFLAGS", "")
	before := tree(t, dir)
	var out, errs bytes.Buffer
	code = run(t.Context(), dir, append([]string{"-seed", "1"}, args...), &out, &errs)
	if tree(t, dir) != before {
		t.Error("the source tree is changed")
	}
	left, err := os.ReadDir(scratch)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind in the folder for temporary files: %v, err %v", left, err)
	}
	return code, out.String(), errs.String()
}

func wants(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("want %q in:\n%s", w, text)
		}
	}
}
