package main

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"
)

func newDiscard() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "discard",
		Doc:  "no statement drops an error without saying so",
		Run:  runDiscard,
	}
}

func runDiscard(pass *analysis.Pass) (any, error) {
	if !ours(pass.Pkg.Path()) {
		return nil, nil
	}
	files := sources(pass)
	x, err := findExcuses(pass, files)
	if err != nil {
		return nil, err
	}
	u := &unit{info: pass.TypesInfo}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call := statement(n)
			if call != nil && fails(u.info.TypeOf(call)) && !u.harmless(call) && !x.cover(call.Pos()) {
				pass.Reportf(call.Pos(), "the error of %s is dropped: return it, or assign it to _ and say why",
					types.ExprString(call.Fun))
			}
			return true
		})
	}
	x.report(pass)
	return nil, nil
}

// statement returns the call that is all of a statement, or nil.
func statement(n ast.Node) *ast.CallExpr {
	switch n := n.(type) {
	case *ast.ExprStmt:
		call, _ := ast.Unparen(n.X).(*ast.CallExpr)
		return call
	case *ast.DeferStmt:
		return n.Call
	case *ast.GoStmt:
		return n.Call
	}
	return nil
}

// fails reports whether the last result of a call is an error.
func fails(result types.Type) bool {
	if several, ok := result.(*types.Tuple); ok && several.Len() > 0 {
		result = several.At(several.Len() - 1).Type()
	}
	return result != nil && types.Identical(result, types.Universe.Lookup("error").Type())
}

// harmless reports whether the error of a call may be dropped: it writes to memory, prints to the
// standard error, where a lost message cannot be reported either, or prints to a table, whose Flush
// is checked.
func (u *unit) harmless(call *ast.CallExpr) bool {
	if u.touchesMemory(call) {
		return true
	}
	fn := typeutil.StaticCallee(u.info, call)
	if fn == nil || !names(`fmt\.Fprint.*`).MatchString(fn.FullName()) {
		return false
	}
	pkg, name := typeName(u.info.TypeOf(call.Args[0]))
	return pkg+"."+name == "text/tabwriter.Writer" || strings.HasSuffix(types.ExprString(call.Args[0]), ".Stderr")
}
