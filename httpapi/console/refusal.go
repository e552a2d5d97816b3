package console

import (
	"html/template"
	"net/url"
	"strings"

	"ronbox/httpapi/wire"
)

// refusal says why a form was not carried out.
type refusal struct {
	Form  string // its name; "": there was none
	Text  string // above the form
	Field string // the field that it is about, "" for none
	Wrong string // what is wrong with it
}

// field is a field of a form.
type field struct{ Name, Label string }

// fields are the fields of forms, by the members of the API that they become.
var fields = map[string]field{
	"from":            {"from", "From"},
	"to":              {"to", "To"},
	"asset":           {"asset", "Asset"},
	"amount_minor":    {"amount", "Amount"},
	"amount":          {"amount", "Amount"},
	"memo":            {"memo", "Memo"},
	"reference":       {"reference", "Reference"},
	"idempotency_key": {"reference", "Reference"},
	"Idempotency-Key": {"reference", "Reference"},
	"level":           {"level", "Log level"},
	"tid":             {"id", "Token"},
	"sub":             {"sub", "Subject"},
	"scopes":          {"scopes", "Scopes"},
	"ttl_s":           {"hours", "Valid for, hours"},
	"ttl":             {"hours", "Valid for, hours"},
}

// reasons are the members that refusals are about which name none.
var reasons = map[string]string{
	"insufficient_funds": "amount_minor",
	"limit_op":           "amount_minor",
	"limit_daily":        "amount_minor",
	"limits_exceeded":    "amount_minor",
	"limit_total":        "to",
	"payee_unknown":      "to",
	"idem_conflict":      "reference",
	"asset_unknown":      "asset",
}

// wrong is what the template of that name is given: a field, and what is wrong with it.
type wrong struct{ Name, Text string }

// label returns the name of a member for people.
func label(member string) string { return fields[member].Label }

// refusalOf returns the refusal of a form for err, which its text begins with.
func refusalOf(form, text string, err error) refusal {
	r := refusal{Form: form}
	member, why := "", explain(err)
	if p := problemOf(err); p != nil {
		member = memberOf(p)
		why = strings.TrimPrefix(why, p.Title+": "+member+": ")
		why, _, _ = strings.Cut(why, " GET /") // what follows is for programs
	} else if name, rest, cut := strings.Cut(why, ": "); cut && fields[name].Name != "" {
		member, why = name, rest
	}
	if f := fields[member]; f.Name != "" {
		r.Field, r.Wrong, r.Text = f.Name, why, strings.TrimSpace(text)
		return r
	}
	r.Text = strings.TrimSpace(text + " " + why)
	return r
}

// memberOf returns the member of the request that a problem is about, or "".
func memberOf(p *wire.Problem) string {
	if name, _ := p.Details["field"].(string); name != "" {
		return name
	}
	return reasons[p.Reason]
}

// Says returns what is said above a form.
func (r refusal) Says(form string) string {
	if r.Form != form {
		return ""
	}
	return r.Text
}

// At returns what is wrong with a field of a form.
func (r refusal) At(form, name string) string {
	if r.Form != form || r.Field != name {
		return ""
	}
	return r.Wrong
}

// Mark returns the attributes of a field of a form that tell of At.
func (r refusal) Mark(form, name string) template.HTMLAttr {
	if r.At(form, name) == "" {
		return ""
	}
	//nolint:gosec // the names are those of the table
	return template.HTMLAttr(`aria-invalid="true" aria-describedby="wrong-` + name + `" autofocus`)
}

// refuse shows the page of a form again, with the values that were sent and the reason why it was
// not carried out.
func (v *view) refuse(path string, status int, in url.Values, r refusal) error {
	in.Del("form")
	v.in, v.refused = in, r
	for _, p := range v.h.pages.all {
		if p.path == path {
			return v.render(status, p, p.data(v))
		}
	}
	return v.h.fault(v.c, v.s, status, strings.TrimSpace(r.Text+" "+r.Wrong))
}
