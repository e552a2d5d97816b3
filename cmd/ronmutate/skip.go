package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// passes says whether n and all that is in it is left alone: imports, logging, and panics, which say in words what only a bug can do. It marks
// the capacity of what is made, and the literals that are returned beside an error, at which nobody looks. Changes there would be survivors
// that say nothing about the tests.
func (f *finder) passes(n ast.Node, at place) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.IMPORT
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		return ok && (logs(call) || calls(call, "panic"))
	case *ast.CallExpr:
		if calls(n, "make") {
			f.skipCapacity(n)
		}
		return logs(n)
	case *ast.ReturnStmt:
		if fails(n, at.results()) {
			f.skipBeside(n)
		}
	}
	return false
}

// fails tells whether n returns an error that is not nil, after other results.
func fails(n *ast.ReturnStmt, results *ast.FieldList) bool {
	if results == nil || len(n.Results) == 0 || results.NumFields() != len(n.Results) {
		return false
	}
	if t, ok := results.List[len(results.List)-1].Type.(*ast.Ident); !ok || t.Name != "error" {
		return false
	}
	last, ok := n.Results[len(n.Results)-1].(*ast.Ident)
	return !ok || last.Name != "nil"
}

func (f *finder) skipBeside(n *ast.ReturnStmt) {
	for _, x := range n.Results[:len(n.Results)-1] {
		switch x.(type) {
		case *ast.BasicLit, *ast.Ident:
			f.skip[x] = true
		}
	}
}

func calls(call *ast.CallExpr, name string) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == name
}

// skipCapacity marks how much room is made beforehand, which is not the length of a slice.
func (f *finder) skipCapacity(call *ast.CallExpr) {
	if len(call.Args) < 2 {
		return
	}
	switch call.Args[0].(type) {
	case *ast.MapType, *ast.ChanType:
		f.skip[call.Args[1]] = true
	default:
		for _, capacity := range call.Args[2:] {
			f.skip[capacity] = true
		}
	}
}

var logWords = []string{"Trace", "Debug", "Info", "Warn", "Error", "Log"}

// logs says whether call tells a log something: a method by the name of a level, of what is called a log.
func logs(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(logWords, method.Sel.Name) {
		return false
	}
	var of string
	switch x := method.X.(type) {
	case *ast.Ident:
		of = x.Name
	case *ast.SelectorExpr:
		of = x.Sel.Name
	}
	of = strings.ToLower(of)
	return strings.HasSuffix(of, "log") || strings.HasSuffix(of, "logger")
}
