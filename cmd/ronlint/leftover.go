package main

import (
	"go/ast"
	"go/constant"
	"go/types"
	"regexp"

	"golang.org/x/tools/go/analysis"
)

func newLeftover() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "leftover",
		Doc:  "nothing is left of debugging, and nothing is left undone",
		Run:  runLeftover,
	}
}

func runLeftover(pass *analysis.Pass) (any, error) {
	if !ours(pass.Pkg.Path()) {
		return nil, nil
	}
	undone := regexp.MustCompile(`^(//|/\*)\s*(TODO|FIXME)\b|\b(TODO|FIXME)[:(]`)
	for _, f := range pass.Files { // tests too
		for _, group := range f.Comments {
			for _, c := range group.List {
				if undone.MatchString(c.Text) {
					pass.Reportf(c.Pos(), "the comment leaves work undone: do it, or open an issue")
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if what := leftover(pass.TypesInfo, call); what != "" {
					pass.Reportf(call.Pos(), "%s", what)
				}
			}
			return true
		})
	}
	return nil, nil
}

// leftover describes a call of a builtin function that was meant for a while only, or returns "".
func leftover(info *types.Info, call *ast.CallExpr) string {
	id, ok := ast.Unparen(call.Fun).(*ast.Ident)
	if !ok {
		return ""
	}
	builtin, ok := info.Uses[id].(*types.Builtin)
	if !ok {
		return ""
	}
	switch builtin.Name() {
	case "print", "println":
		return builtin.Name() + " is for debugging: remove it"
	case "panic":
		if undoneText(info.Types[call.Args[0]].Value) {
			return "the panic stands for code that is missing: write it"
		}
	}
	return ""
}

// undoneText reports whether a constant is a text such as "not implemented".
func undoneText(v constant.Value) bool {
	return v != nil && v.Kind() == constant.String &&
		regexp.MustCompile(`(?i)^\W*(todo|fixme|(not|un).?(yet.)?implemented)\b`).MatchString(constant.StringVal(v))
}
