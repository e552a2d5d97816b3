package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/tools/go/analysis"
)

// Limits of a line, in columns. A tab counts as four.
const (
	codeColumns    = 120
	commentColumns = 100
	tabColumns     = 4
)

func newWidth() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "width",
		Doc:  "code of the product is at most 120 columns wide, a comment on lines of its own at most 100",
		Run:  runWidth,
	}
}

func runWidth(pass *analysis.Pass) (any, error) {
	if !ours(pass.Pkg.Path()) {
		return nil, nil
	}
	for _, f := range pass.Files {
		name := pass.Fset.PositionFor(f.FileStart, false).Filename
		if ast.IsGenerated(f) || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue // tables of tests have long rows
		}
		src, err := pass.ReadFile(name)
		if err != nil {
			return nil, err
		}
		w := &widths{file: pass.Fset.File(f.FileStart), comments: map[int]bool{}, raw: map[int]bool{}}
		w.index(f)
		for i, text := range strings.Split(string(src), "\n") {
			if limit := w.limit(i+1, text); columns(text) > limit {
				pass.Reportf(w.file.LineStart(i+1), "the line has %d columns, the limit is %d", columns(text), limit)
			}
		}
	}
	return nil, nil
}

// widths knows which lines of a file hold comments and raw strings.
type widths struct {
	file     *token.File
	comments map[int]bool // lines that belong to a comment
	raw      map[int]bool // lines of raw strings, tags of structs among them
}

// index records the comments and the raw strings of f.
func (w *widths) index(f *ast.File) {
	note := func(to map[int]bool, n ast.Node) {
		for line := w.file.Line(n.Pos()); line <= w.file.Line(n.End()-1); line++ {
			to[line] = true
		}
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			note(w.comments, c)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && lit.Value[0] == '`' {
			note(w.raw, lit)
		}
		return true
	})
}

// limit returns the limit of a line. A line that cannot be split has none: it holds a raw string, a
// single word in a comment, or a single string without a space.
func (w *widths) limit(line int, text string) int {
	const none = 1 << 30
	text = strings.TrimSpace(text)
	comment, alone := strings.CutPrefix(text, "//")
	switch {
	case w.raw[line]:
		return none
	case !w.comments[line] || !alone && !strings.HasPrefix(text, "/*"):
		if unsplittable(text) {
			return none
		}
		return codeColumns
	case !strings.Contains(strings.TrimSpace(comment), " "):
		return none
	case strings.HasPrefix(comment, "\t") || directive().MatchString(comment): // preformatted, or one line by its form
		return codeColumns
	}
	return commentColumns
}

// directive matches comments such as go:generate and the excuses of the analyzers.
func directive() *regexp.Regexp { return regexp.MustCompile(`^[a-z]+:`) }

// unsplittable reports whether the only word of a line of code is a string without a space.
func unsplittable(text string) bool {
	first, last := strings.IndexAny(text, "\"`"), strings.LastIndexAny(text, "\"`")
	if first < 0 || first == last {
		return false
	}
	words := func(s string) bool {
		return strings.ContainsFunc(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	}
	return !words(text[:first]) && !words(text[last:]) && !strings.Contains(text[first:last], " ")
}

// columns returns the width of a line.
func columns(text string) int {
	return utf8.RuneCountInString(text) + (tabColumns-1)*strings.Count(text, "\t")
}
