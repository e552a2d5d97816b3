package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Import paths: the module of the program that is analyzed, and two of its packages. Tables
// describe the functions of other modules.
const (
	module    = "ronbox"
	flowPath  = module + "/appliance/flow"
	storePath = module + "/store"
)

// ours reports whether path is a package of the program.
func ours(path string) bool {
	return path == module || strings.HasPrefix(path, module+"/")
}

// own reports whether fn is a function of the program.
func own(fn *types.Func) bool { return fn.Pkg() != nil && ours(fn.Pkg().Path()) }

// excuse is a comment //rule: reason.
type excuse struct {
	pos    token.Pos
	reason string
	used   bool
}

// place is a line of a file.
type place struct {
	file string
	line int
}

// excuses holds the excuses of one package for one rule, by the line that they cover.
type excuses struct {
	fset *token.FileSet
	at   map[place]*excuse
	all  []*excuse
}

func findExcuses(pass *analysis.Pass, files []*ast.File) (*excuses, error) {
	e := &excuses{fset: pass.Fset, at: map[place]*excuse{}}
	mark := "//" + pass.Analyzer.Name + ":"
	for _, f := range files {
		for _, group := range f.Comments {
			for _, c := range group.List {
				reason, ok := strings.CutPrefix(c.Text, mark)
				if !ok {
					continue
				}
				x := &excuse{pos: c.Pos(), reason: strings.TrimSpace(reason)}
				p := pass.Fset.Position(c.Pos())
				alone, err := opensLine(pass, p)
				if err != nil {
					return nil, err
				}
				if alone { // it covers the line after its comment
					p.Line = pass.Fset.Position(group.End()).Line + 1
				}
				e.at[place{p.Filename, p.Line}] = x
				e.all = append(e.all, x)
			}
		}
	}
	return e, nil
}

// opensLine reports whether only white space precedes p on its line.
func opensLine(pass *analysis.Pass, p token.Position) (bool, error) {
	src, err := pass.ReadFile(p.Filename)
	if err != nil {
		return false, err
	}
	return strings.TrimSpace(string(src[p.Offset-(p.Column-1):p.Offset])) == "", nil
}

// of returns the excuse that covers pos, or nil.
func (e *excuses) of(pos token.Pos) *excuse {
	p := e.fset.Position(pos)
	return e.at[place{p.Filename, p.Line}]
}

// cover reports whether pos is excused, and marks the excuse as used.
func (e *excuses) cover(pos token.Pos) bool {
	x := e.of(pos)
	if x != nil {
		x.used = true
	}
	return x != nil
}

// report reports excuses without a reason and unused excuses.
func (e *excuses) report(pass *analysis.Pass) {
	for _, x := range e.all {
		switch {
		case x.reason == "":
			pass.Reportf(x.pos, "the excuse gives no reason")
		case !x.used:
			pass.Reportf(x.pos, "the excuse is not needed: remove the comment")
		}
	}
}

// sources returns the files of the pass that are not tests.
func sources(pass *analysis.Pass) []*ast.File {
	var out []*ast.File
	for _, f := range pass.Files {
		if !strings.HasSuffix(pass.Fset.Position(f.FileStart).Filename, "_test.go") {
			out = append(out, f)
		}
	}
	return out
}
