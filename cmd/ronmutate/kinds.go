package main

import (
	"go/ast"
	"go/token"
	"strconv"
)

// others gives each operator the one that it is mistaken for.
var others = map[token.Token]struct {
	op   token.Token
	kind kind
}{
	token.EQL: {token.NEQ, compare}, token.NEQ: {token.EQL, compare},
	token.LSS: {token.LEQ, compare}, token.LEQ: {token.LSS, compare},
	token.GTR: {token.GEQ, compare}, token.GEQ: {token.GTR, compare},
	token.LAND: {token.LOR, logic}, token.LOR: {token.LAND, logic},
	token.ADD: {token.SUB, compute}, token.SUB: {token.ADD, compute},
	token.MUL: {token.ADD, compute}, token.QUO: {token.MUL, compute}, token.REM: {token.QUO, compute},
	token.AND: {token.OR, compute}, token.OR: {token.AND, compute},
	token.XOR: {token.AND, compute}, token.AND_NOT: {token.AND, compute},
	token.SHL: {token.SHR, compute}, token.SHR: {token.SHL, compute},
	token.ADD_ASSIGN: {token.SUB_ASSIGN, compute}, token.SUB_ASSIGN: {token.ADD_ASSIGN, compute},
	token.MUL_ASSIGN: {token.ADD_ASSIGN, compute}, token.QUO_ASSIGN: {token.MUL_ASSIGN, compute}, token.REM_ASSIGN: {token.QUO_ASSIGN, compute},
	token.AND_ASSIGN: {token.OR_ASSIGN, compute}, token.OR_ASSIGN: {token.AND_ASSIGN, compute},
	token.XOR_ASSIGN: {token.AND_ASSIGN, compute}, token.AND_NOT_ASSIGN: {token.AND_ASSIGN, compute},
	token.SHL_ASSIGN: {token.SHR_ASSIGN, compute}, token.SHR_ASSIGN: {token.SHL_ASSIGN, compute},
	token.INC: {token.DEC, compute}, token.DEC: {token.INC, compute},
	token.BREAK: {token.CONTINUE, branch}, token.CONTINUE: {token.BREAK, branch},
}

// operator changes op, which stands at pos, for its other.
func (f *finder) operator(op token.Token, pos token.Pos, at place) {
	if o, ok := others[op]; ok {
		f.add(o.kind, pos, pos+token.Pos(len(op.String())), o.op.String(), at)
	}
}

// negate turns a condition round. Of an equality the other operator does the same.
func (f *finder) negate(cond ast.Expr, at place) {
	at = place{cond, append(at.stack[:len(at.stack):len(at.stack)], at.node)}
	switch c := cond.(type) {
	case *ast.BinaryExpr:
		if c.Op == token.EQL || c.Op == token.NEQ {
			return
		}
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			f.replace(negate, c, f.text(c.X), at)
			return
		}
	case *ast.Ident:
		if c.Name == "true" || c.Name == "false" {
			return // another kind
		}
	}
	f.replace(negate, cond, "!("+f.text(cond)+")", at)
}

// loop turns the condition of a loop round, unless it counts: that would only run for ever or not at all, as would one whose step is changed.
func (f *finder) loop(n *ast.ForStmt, at place) {
	if n.Post != nil {
		f.skip[n.Post] = true
	}
	if _, counts := n.Cond.(*ast.BinaryExpr); n.Cond != nil && !counts {
		f.negate(n.Cond, at)
	}
}

// cases turns the conditions of a switch round that has no tag.
func (f *finder) cases(n *ast.SwitchStmt, at place) {
	if n.Tag != nil {
		return
	}
	for _, clause := range n.Body.List {
		for _, cond := range clause.(*ast.CaseClause).List {
			f.negate(cond, at)
		}
	}
}

// integer changes a number by one.
func (f *finder) integer(n *ast.BasicLit, at place) {
	if n.Kind != token.INT {
		return
	}
	v, err := strconv.ParseUint(n.Value, 0, 64)
	if err != nil || v+1 == 0 {
		return // wider than what a variable holds
	}
	f.replace(constant, n, strconv.FormatUint(v+1, 10), at)
	if v == 0 {
		f.replace(constant, n, "(-1)", at)
		return
	}
	f.replace(constant, n, strconv.FormatUint(v-1, 10), at)
}

func (f *finder) truth(n *ast.Ident, at place) {
	switch n.Name {
	case "true":
		f.replace(boolean, n, "false", at)
	case "false":
		f.replace(boolean, n, "true", at)
	}
}

// assignment changes what is done with a value that is there, and drops what assigns without declaring.
func (f *finder) assignment(n *ast.AssignStmt, at place) {
	if n.Tok == token.DEFINE {
		return
	}
	f.operator(n.Tok, n.TokPos, at)
	if id, ok := n.Lhs[0].(*ast.Ident); ok && id.Name == "_" && len(n.Lhs) == 1 {
		return // the call matters, if anything does
	}
	f.replace(drop, n, "", at)
}

func (f *finder) step(n *ast.IncDecStmt, at place) {
	f.operator(n.Tok, n.TokPos, at)
	f.replace(drop, n, "", at)
}

// call drops a call whose results nobody takes.
func (f *finder) call(x ast.Expr, at place) {
	if _, ok := x.(*ast.CallExpr); ok {
		f.replace(drop, at.node, "", at)
	}
}

func (f *finder) jump(n *ast.BranchStmt, at place) { f.operator(n.Tok, n.TokPos, at) }

// failure turns the error that a function returns to nil.
func (f *finder) failure(n *ast.ReturnStmt, at place) {
	if fails(n, at.results()) {
		f.replace(succeed, n.Results[len(n.Results)-1], "nil", at)
	}
}

// results are those of the function around a place.
func (p place) results() *ast.FieldList {
	for i := len(p.stack) - 1; i >= 0; i-- {
		switch n := p.stack[i].(type) {
		case *ast.FuncLit:
			return n.Type.Results
		case *ast.FuncDecl:
			return n.Type.Results
		}
	}
	return nil
}
