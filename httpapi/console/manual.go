package console

import (
	"bytes"
	"html/template"
	"io/fs"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

const (
	manualPath = "/console/manual"
	bookList   = "README" // the page that lists the others
	markdown   = ".md"
)

// book holds the pages of the manual by topic. It is read-only after newBook.
type book map[string]leaf

// leaf renders a page at its first call.
type leaf func() (rendered, error)

// rendered is a page: its title, and the text below it.
type rendered struct {
	Title string
	Text  template.HTML
}

// newBook returns the pages of files, which are Markdown.
func newBook(files fs.FS) (book, error) {
	b := book{}
	names, err := fs.Glob(files, "*"+markdown)
	for _, file := range names {
		name := strings.TrimSuffix(file, markdown)
		b[name] = sync.OnceValues(func() (rendered, error) { return renderFile(files, file) })
	}
	return b, err
}

// renderFile renders a page. HTML in it is left out; a link to TOPIC.md leads to the page of the
// topic.
func renderFile(files fs.FS, file string) (rendered, error) {
	source, err := fs.ReadFile(files, file)
	if err != nil {
		return rendered{}, err
	}
	title, source, _ := bytes.Cut(bytes.TrimPrefix(source, []byte("# ")), []byte("\n"))
	links := util.Prioritized(manualLinks{}, 100)
	aligned := extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute) // the policy forbids styles
	md := goldmark.New(
		goldmark.WithExtensions(extension.NewTable(aligned)),
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(links)),
	)
	var out bytes.Buffer
	if err := md.Convert(source, &out); err != nil {
		return rendered{}, err
	}
	return rendered{string(title), template.HTML(scrolled.Replace(out.String()))}, nil
}

// scrolled lets blocks and tables that are wider than a page scroll, by the keyboard too. The text
// of a page has no such tags: there < is an entity.
var scrolled = strings.NewReplacer("<pre>", `<pre tabindex="0">`,
	"<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>")

// manualLinks changes the links of a page: TOPIC.md#heading leads to the page of the topic.
type manualLinks struct{}

// Transform implements parser.ASTTransformer.
func (manualLinks) Transform(page *ast.Document, _ text.Reader, _ parser.Context) {
	_ = ast.Walk(page, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it never fails
		if link, ok := n.(*ast.Link); ok && entering {
			to, heading, _ := strings.Cut(string(link.Destination), "#")
			if topic, ok := strings.CutSuffix(to, markdown); ok && !strings.Contains(topic, "/") {
				link.Destination = []byte(manualPath + "/" + topic)
				if heading != "" {
					link.Destination = append(link.Destination, "#"+heading...)
				}
			}
		}
		return ast.WalkContinue, nil
	})
}
