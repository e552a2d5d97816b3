package wallet

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
)

// A shell is offered the names of the node that begin with what was typed. Without an answer it is
// offered nothing, and no message disturbs the person who types.
func TestCompletion(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/assets":
			_, _ = io.WriteString(w, `{"assets":[{"asset":"eur"},{"asset":"ron"}]}`)
		case "/v1/accounts":
			var names []string
			for i := range 2 * cli.MostNames {
				names = append(names, fmt.Sprintf(`{"account":"a%03d","flags":[]}`, i))
			}
			_, _ = io.WriteString(w, `{"accounts":[`+strings.Join(names, ",")+`]}`)
		}
	}))
	defer node.Close()
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer stuck.Close()
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()
	for _, tt := range []struct {
		doc, url, line string
		lines          int
		first          string
	}{
		{"a payer", node.URL, "wallet transfer a00", 10, "a000"},
		{"a payee", node.URL, "wallet transfer alice a00", 10, "a000"},
		{"no more than a person reads", node.URL, "wallet transfer _", cli.MostNames, "a000"},
		{"an amount", node.URL, "wallet transfer alice bob _", 0, ""},
		{"an argument too many", node.URL, "wallet balance alice _", 0, ""},
		{"an asset", node.URL, "wallet balance alice --asset _", 2, "eur"},
		{"an asset that is begun", node.URL, "wallet balance alice --asset r", 1, "ron"},
		{"a printed request", node.URL, "--print-curl wallet balance _", 0, ""},
		{"a node that refuses", refuses.URL, "wallet balance _", 0, ""},
		{"a node that does not answer", stuck.URL, "wallet balance _", 0, ""},
		{"no node", "http://127.0.0.1:1", "wallet balance _", 0, ""},
		{"no URL", "http:///", "wallet balance _", 0, ""},
	} {
		var out, messages bytes.Buffer
		a := cli.New(strings.NewReader(""), &out, &messages, server.Build{})
		root := &cobra.Command{Use: "ronbox"}
		a.AddFlags(root)
		root.AddCommand(Command(a))
		args := append([]string{"__complete", "--url", tt.url}, strings.Fields(tt.line)...)
		if last := len(args) - 1; args[last] == "_" {
			args[last] = ""
		}
		code := a.Run(t.Context(), root, args)
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		end := len(lines) - 1
		if code != 0 || lines[end] != fmt.Sprint(":", int(cobra.ShellCompDirectiveNoFileComp)) ||
			end != tt.lines || end > 0 && lines[0] != tt.first || strings.Count(messages.String(), "\n") != 1 {
			t.Errorf("%s: exit %d, %d lines, %q; %q", tt.doc, code, end, out.String(), messages.String())
		}
	}
}
