package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The limits of a package, without its tests. In a knot each file uses every other one, directly or
// through others, so that none of them can be read, moved or tested alone.
const (
	mostFiles  = 24 // of a package
	mostSpread = 10 // files that have methods of one type
	smallKnot  = 9  // files; a larger knot may have
	mostShare  = 60 // percent of the files of its package
)

// wall is the size of a package beyond the limits. A number is 0 if its limit holds.
type wall struct {
	files  int
	knot   int
	spread int // files that have methods of the widest type
	why    string
}

// walls returns by how much each package exceeds the limits, by folder.
func walls(t *testing.T) map[string]wall {
	t.Helper()
	all, exports := listed(t)
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, errors.New("not listed: " + path)
		}
		return os.Open(exports[path])
	})
	out := map[string]wall{}
	for dir, files := range all {
		if len(files) <= smallKnot {
			continue
		}
		var w wall
		if len(files) > mostFiles {
			w.files = len(files)
		}
		uses, spread := measure(t, fset, imports, dir, files)
		if spread > mostSpread {
			w.spread = spread
		}
		if knot := largestKnot(uses); knot > smallKnot && 100*knot > mostShare*len(files) {
			w.knot = knot
		}
		if w != (wall{}) {
			out[dir] = w
		}
	}
	return out
}

// listed returns the files of each package of the module, by folder, and the export data of all
// packages, by import path.
func listed(t *testing.T) (files map[string][]string, exports map[string]string) {
	t.Helper()
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export,Module", "./...")
	list.Dir = "../.."
	list.Stderr = os.Stderr
	raw, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files, exports = map[string][]string{}, map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(raw)); ; {
		var p struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
			Module                  *struct{ Main bool }
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return files, exports
		}
		if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.Module == nil || !p.Module.Main {
			continue
		}
		dir := strings.TrimPrefix(p.ImportPath, "ronbox/")
		for _, name := range p.GoFiles {
			files[dir] = append(files[dir], filepath.Join(p.Dir, name))
		}
	}
}

// measure returns which files of a package each file uses, and how many files have methods of the
// widest type. Of a package of verbs the type app does not count: it has a file for each verb.
func measure(
	t *testing.T,
	fset *token.FileSet,
	imports types.Importer,
	dir string,
	names []string,
) (uses map[string][]string, spread int) {
	t.Helper()
	var files []*ast.File
	homes := map[string]map[string]bool{}
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			of := receiverOf(fn.Recv.List[0].Type)
			if homes[of] == nil {
				homes[of] = map[string]bool{}
			}
			homes[of][name] = true
		}
	}
	delete(homes, "app")
	for _, in := range homes {
		spread = max(spread, len(in))
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	self, err := (&types.Config{Importer: imports}).Check(dir, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	uses = map[string][]string{}
	for id, o := range info.Uses {
		if o.Pkg() != self || !o.Pos().IsValid() {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(o.Pos()).Filename
		if from != to && !slices.Contains(uses[from], to) {
			uses[from] = append(uses[from], to)
		}
	}
	return uses, spread
}

func receiverOf(e ast.Expr) string {
	switch of := e.(type) {
	case *ast.StarExpr:
		return receiverOf(of.X)
	case *ast.IndexExpr:
		return receiverOf(of.X)
	case *ast.IndexListExpr:
		return receiverOf(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// largestKnot returns the size of the largest strongly connected component.
func largestKnot(uses map[string][]string) (most int) {
	reached := map[string]map[string]bool{}
	for from := range uses {
		reached[from] = map[string]bool{}
		for next := []string{from}; len(next) > 0; {
			at := next[len(next)-1]
			next = next[:len(next)-1]
			for _, to := range uses[at] {
				if !reached[from][to] {
					reached[from][to] = true
					next = append(next, to)
				}
			}
		}
	}
	for from, there := range reached {
		knot := 0
		for to := range there {
			if reached[to][from] {
				knot++
			}
		}
		most = max(most, knot)
	}
	return most
}

// Files that use each other in a circle are a knot. Files in a line are not.
func TestLargestKnot(t *testing.T) {
	for want, uses := range map[int]map[string][]string{
		0: {"a": {"b"}, "b": {"c"}},
		2: {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}},
		3: {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}},
	} {
		if got := largestKnot(uses); got != want {
			t.Errorf("%v: %d, want %d", uses, got, want)
		}
	}
}
