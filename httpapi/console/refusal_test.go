package console

import (
	"strings"
	"testing"

	"ronbox/httpapi/wire"
)

// A refusal stands at the field that it is about, in the words of the form.
func TestRefusalsStandAtTheirFields(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want refusal
	}{
		{notice("amount: must be digits"), refusal{"pay", "No.", "amount", "must be digits"}},
		{notice("It rains"), refusal{Form: "pay", Text: "No. It rains"}},
		{&wire.Problem{Title: "Malformed", Detail: "amount_minor: must be above 0", Status: 400,
			Details: map[string]any{"field": "amount_minor"}}, refusal{"pay", "No.", "amount", "must be above 0"}},
		{&wire.Problem{Title: "Not enough", Detail: "The payer has less. GET /v1/balance shows it.", Status: 409, Reason: "insufficient_funds"},
			refusal{"pay", "No.", "amount", "Not enough: The payer has less."}},
		{&wire.Problem{Title: "Busy", Status: 503, Reason: "busy"}, refusal{Form: "pay", Text: "No. Busy"}},
	} {
		if got := refusalOf("pay", "No.", tt.err); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.err, got, tt.want)
		}
	}
	r := refusal{"pay", "No.", "amount", "must be digits"}
	if r.At("pay", "to") != "" || r.At("tokens", "amount") != "" || r.Says("tokens") != "" || r.Mark("pay", "to") != "" {
		t.Error("a refusal shows in another form, or at another field")
	}
}

// The entrance takes a code, or the link that has it.
func TestCodeInALink(t *testing.T) {
	code := secret()
	if len(code) != codeLength {
		t.Errorf("a code has %d characters, not %d", len(code), codeLength)
	}
	for _, text := range []string{code, " " + code + "\n", "http://127.0.0.1:8080/console/enter#" + code} {
		if got := codeIn(text); got != code {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestPageOfAForm(t *testing.T) {
	for path, want := range map[string]string{
		"/console/wallet/pay": "/console/wallet", "/console/operations/level": "/console/operations",
		"/console/leave": "/console/",
	} {
		if got := pageOfForm(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// A refused form is shown under its own path, so the pages with forms have whole links.
func TestPagesOfFormsHaveWholeLinks(t *testing.T) {
	for _, name := range []string{"wallet", "operations"} {
		text, err := templateFiles.ReadFile("templates/" + name + ".html")
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`href="?`, `method="get">`} {
			if strings.Contains(string(text), part) {
				t.Errorf("%s has %s", name, part)
			}
		}
	}
}
