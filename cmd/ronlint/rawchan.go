package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

func newRawchan() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "rawchan",
		Doc:  "queues, tickers and delayed functions are declared in the catalogue of package flow",
		Run:  runRawchan,
	}
}

func runRawchan(pass *analysis.Pass) (any, error) {
	if path := pass.Pkg.Path(); !ours(path) || path == flowPath {
		return nil, nil
	}
	files := sources(pass)
	x, err := findExcuses(pass, files)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if what := undeclared(pass.TypesInfo, n); what != "" && !x.cover(n.Pos()) {
				pass.Reportf(n.Pos(), "%s that no catalogue declares: use appliance/flow", what)
			}
			return true
		})
	}
	x.report(pass)
	return nil, nil
}

// undeclared describes an undeclared channel, ticker or goroutine that n creates, or returns "".
func undeclared(info *types.Info, n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		id, ok := ast.Unparen(n.Fun).(*ast.Ident)
		if !ok || info.Uses[id] != types.Universe.Lookup("make") {
			return ""
		}
		if ch, ok := info.TypeOf(n.Args[0]).Underlying().(*types.Chan); ok && !isSignal(info, ch, n.Args[1:]) {
			return "a channel"
		}
	case *ast.Ident:
		if fn, ok := info.Uses[n].(*types.Func); ok {
			switch fn.FullName() {
			case "time.NewTicker", "time.Tick":
				return "a ticker"
			case "time.AfterFunc":
				return "a goroutine"
			}
		}
	}
	return ""
}

// isSignal reports whether a channel carries no values and has capacity for at most one: a latch or
// a wake-up.
func isSignal(info *types.Info, ch *types.Chan, room []ast.Expr) bool {
	if st, ok := ch.Elem().Underlying().(*types.Struct); !ok || st.NumFields() > 0 {
		return false
	}
	if len(room) == 0 {
		return true
	}
	n := info.Types[room[0]].Value
	return n != nil && constant.Compare(n, token.LEQ, constant.MakeInt64(1))
}
