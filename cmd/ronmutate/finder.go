package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
)

// finder makes the list of mutants of one file.
type finder struct {
	of    mutant // what all of them share
	src   []byte
	fset  *token.FileSet
	skip  map[ast.Node]bool
	found []mutant
}

// find lists the mutants of the source of a file, in its order.
func find(of mutant, src []byte) ([]mutant, error) {
	f := &finder{of: of, src: src, fset: token.NewFileSet(), skip: map[ast.Node]bool{}}
	file, err := parser.ParseFile(f.fset, of.path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.PreorderStack(file, nil, func(n ast.Node, stack []ast.Node) bool {
		at := place{n, stack}
		if f.skip[n] || f.passes(n, at) {
			return false
		}
		f.mutate(n, at)
		return true
	})
	slices.SortStableFunc(f.found, func(a, b mutant) int { return cmp.Compare(a.start, b.start) })
	return f.found, nil
}

// mutate adds the mutants of n itself.
func (f *finder) mutate(n ast.Node, at place) {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.negate(n.Cond, at)
	case *ast.ForStmt:
		f.loop(n, at)
	case *ast.SwitchStmt:
		f.cases(n, at)
	case *ast.BinaryExpr:
		f.operator(n.Op, n.OpPos, at)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.replace(negate, n, f.text(n.X), at)
		}
	case *ast.BasicLit:
		f.integer(n, at)
	case *ast.Ident:
		f.truth(n, at)
	case *ast.AssignStmt:
		f.assignment(n, at)
	case *ast.IncDecStmt:
		f.step(n, at)
	case *ast.ExprStmt:
		f.call(n.X, at)
	case *ast.DeferStmt:
		f.call(n.Call, at)
	case *ast.BranchStmt:
		f.jump(n, at)
	case *ast.ReturnStmt:
		f.failure(n, at)
	}
}

// place is a node and those around it, outermost first.
type place struct {
	node  ast.Node
	stack []ast.Node
}

// piece is what is shown of the place: the expression or the statement around the change, but no block.
func (p place) piece() ast.Node {
	shown := p.node
	for i := len(p.stack) - 1; i >= 0; i-- {
		if _, simple := shown.(ast.Stmt); simple {
			return shown
		}
		switch n := p.stack[i].(type) {
		case *ast.BlockStmt, *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.CaseClause, *ast.GenDecl, *ast.FuncType, *ast.FieldList,
			*ast.File:
			return shown
		default:
			shown = n
		}
	}
	return shown
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) text(n ast.Node) string { return string(f.src[f.offset(n.Pos()):f.offset(n.End())]) }

// replace adds the mutant in which a node of a place is another text.
func (f *finder) replace(k kind, n ast.Node, text string, at place) {
	f.add(k, n.Pos(), n.End(), text, at)
}

// add adds a mutant, unless it is the same as one found before.
func (f *finder) add(k kind, from, to token.Pos, text string, at place) {
	m := f.of
	m.Kind, m.Line, m.text = k, f.fset.Position(from).Line, text
	m.start, m.end = f.offset(from), f.offset(to)
	for i := range f.found {
		if o := &f.found[i]; o.start == m.start && o.end == m.end && o.text == m.text {
			return
		}
	}
	piece := at.piece()
	m.show(f.src, f.offset(piece.Pos()), f.offset(piece.End()))
	f.found = append(f.found, m)
}
