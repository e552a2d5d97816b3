package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
)

// variation is a place at which a function does what another time may come out differently.
type variation struct {
	pos  token.Pos
	what string
}

// outsideVaries says which functions of others vary, beside those that wait.
var outsideVaries = map[string]*regexp.Regexp{
	"time":                     names(`Now`, `Since`, `Until`, `After`, `AfterFunc`, `Tick`, `NewTimer`, `NewTicker`),
	"math/rand":                names(`.*`),
	"math/rand/v2":             names(`.*`),
	"crypto/rand":              names(`.*`),
	"os":                       names(`Getenv`, `LookupEnv`, `Environ`, `ExpandEnv`, `Getpid`, `Getppid`, `Getuid`, `Geteuid`, `Getwd`, `Hostname`, `Executable`, `User.*`, `TempDir`),
	"runtime":                  names(`Num.*`, `GOMAXPROCS`, `ReadMemStats`, `Gosched`),
	"hash/maphash":             names(`.*`),
	"maps":                     names(`Keys`, `Values`, `All`),
	"github.com/oklog/ulid/v2": names(`Make`, `Now`, `MustNewDefault`),
}

// variations are those in a block and its closures.
func (c *cook) variations(block *ast.BlockStmt) (out []variation) {
	sorted := map[ast.Node]bool{} // what is put in order at once
	ast.Inspect(block, func(n ast.Node) bool {
		if n == nil || sorted[n] {
			return n != nil
		}
		if call, ok := n.(*ast.CallExpr); ok && c.sorts(call) {
			sorted[ast.Unparen(call.Args[0])] = true
		}
		if what := c.variation(n); what != "" {
			out = append(out, variation{n.Pos(), what})
		}
		return true
	})
	return out
}

// variation says how n itself varies.
func (c *cook) variation(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "a goroutine"
	case *ast.SendStmt, *ast.SelectStmt:
		return "a channel"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "a channel"
		}
	case *ast.RangeStmt:
		switch c.info.TypeOf(n.X).Underlying().(type) {
		case *types.Chan:
			return "a channel"
		case *types.Map:
			if !clears(n) {
				return "the order of a map"
			}
		}
	case *ast.BinaryExpr:
		if c.isFloat(n) {
			return "a float"
		}
	case *ast.CallExpr:
		if c.info.Types[n.Fun].IsType() && c.isFloat(n) {
			return "a float"
		}
		return c.called(n)
	}
	return ""
}

// called says how the function varies that a call names.
func (c *cook) called(call *ast.CallExpr) string {
	var id *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return ""
	}
	switch obj := c.info.Uses[id].(type) {
	case *types.Var:
		if isFunc(obj) && isClock(obj.Type()) {
			return "a clock"
		}
	case *types.Func:
		if obj.Pkg() == nil || ours(obj.Pkg().Path()) {
			return ""
		}
		name := obj.Name()
		if _, recv := receiver(obj); recv != "" {
			name = recv + "." + name
		}
		if table := outsideVaries[obj.Pkg().Path()]; table != nil && table.MatchString(name) {
			return "a call of " + obj.Pkg().Name() + "." + name
		}
		return c.outside(obj, call)
	}
	return ""
}

// sorts says whether a call puts what it is given in order.
func (c *cook) sorts(call *ast.CallExpr) bool {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	fn, ok := c.info.Uses[sel.Sel].(*types.Func)
	return ok && fn.Pkg() != nil && fn.Pkg().Path() == "slices" && (fn.Name() == "Sorted" || fn.Name() == "SortedFunc" || fn.Name() == "SortedStableFunc")
}

// clears says whether a range over a map does not look at what it holds.
func clears(n *ast.RangeStmt) bool {
	return n.Key == nil && n.Value == nil
}

// isFloat says whether e is a float that is not known when it is compiled.
func (c *cook) isFloat(e ast.Expr) bool {
	tv := c.info.Types[e]
	if tv.Value != nil || tv.Type == nil {
		return false
	}
	b, ok := tv.Type.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsFloat|types.IsComplex) != 0
}
