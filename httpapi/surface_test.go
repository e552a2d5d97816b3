package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/openapi"
)

// target is a path of the route with values that its parameters can have.
func (r *Route) target() string {
	return strings.NewReplacer(":v", "2", ":epoch", "1", ":id", proposal, ":kid", "k1", ":profile", "heap", ":name", "Head", ":txid", txid).Replace(r.Pattern)
}

// refuses asks a route and wants a 400 that names field.
func (r *rig) refuses(t *testing.T, route *Route, target, body, field, doc string) {
	t.Helper()
	w := r.socket(route.Method, target, body, nil)
	if w.Code != http.StatusBadRequest || problemIn(t, w.Body.String()).Details["field"] != field {
		t.Errorf("%s %s, %s: %d %s, want 400 for %s", route.Method, target, doc, w.Code, w.Body, field)
	}
}

// What the document says of a query parameter is what the route holds it to, and there are no others.
func TestEveryQueryParameterIsHeldToItsRow(t *testing.T) {
	r := newRig(t)
	for _, route := range r.routes {
		if route.In != nil {
			continue // the body is looked at first
		}
		base := route.target() + "?"
		r.refuses(t, &route, base+"unheard_of=1", "", "unheard_of", "a stranger")
		for _, p := range route.Query {
			r.refuses(t, &route, base+p.Name+"=1&"+p.Name+"=1", "", p.Name, "twice")
			for _, wrong := range misfits(p) {
				r.refuses(t, &route, base+others(&route, p)+p.Name+"="+wrong, "", p.Name, wrong)
			}
		}
	}
}

// misfits are values that p cannot have.
func misfits(p openapi.Param) []string {
	switch {
	case len(p.Enum) > 0:
		return []string{"other", ""}
	case p.Sample != nil:
		return []string{formatUint(p.Min - 1), formatUint(p.Max + 1), "x", "01", "-1", "1.0", ""}
	}
	return nil
}

// others gives the parameters that must be there beside p.
func others(route *Route, p openapi.Param) (query string) {
	for _, o := range route.Query {
		if o.Required && o.Name != p.Name {
			query += o.Name + "=" + formatUint(o.Min) + "&"
		}
	}
	return query
}

// What the document says of a body is what the route reads: no other members, none twice, none null or of another type.
func TestEveryBodyIsReadStrictly(t *testing.T) {
	r := newRig(t)
	for _, route := range r.routes {
		if route.In == nil {
			continue
		}
		members := plain(t, r, reflect.TypeOf(route.In).Name())
		names := slices.Sorted(maps.Keys(members))
		whole := func(change, to string) string {
			var out []string
			for _, n := range names {
				if n == change {
					out = append(out, fmt.Sprintf("%q:%s", n, to))
				} else {
					out = append(out, fmt.Sprintf("%q:%s", n, members[n].good))
				}
			}
			return "{" + strings.Join(out, ",")
		}
		send := func(body, field, doc string) { r.refuses(t, &route, route.target(), body, field, doc) }
		send(whole("", "")+`,"unheard_of":1}`, "unheard_of", "a stranger")
		for _, n := range names {
			send(whole("", "")+fmt.Sprintf(",%q:%s}", n, members[n].good), n, n+" twice")
			send(whole(n, "null")+"}", n, n+" null")
			if members[n].bad != "" {
				send(whole(n, members[n].bad)+"}", n, n+" of another type")
			}
		}
	}
}

// value is JSON that a member can hold by its type, and JSON that it cannot.
type value struct{ good, bad string }

// wellSpelt are members whose spelling is looked at before what stands behind them is.
func wellSpelt() map[string]string {
	return map[string]string{
		"amount_minor": `"5"`, "from": `"alice"`, "to": `"bob"`, "asset": `"ron"`, "hold": `"` + txid + `"`, "mode": `"atomic"`,
		"valid_until": `"2100-01-01T00:00:00Z"`, "account": `"alice"`,
	}
}

// plain gives values for the members of a body as its schema has them.
func plain(t *testing.T, r *rig, name string) map[string]value {
	t.Helper()
	raw, ok := r.doc.Schema(name)
	if !ok {
		t.Fatalf("no schema of %s", name)
	}
	var s struct {
		Properties map[string]struct {
			Type string   `json:"type"`
			Enum []string `json:"enum"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	out := map[string]value{}
	for member, p := range s.Properties {
		out[member] = map[string]value{
			"string": {`"x"`, "1"}, "integer": {"1", `"x"`}, "boolean": {"true", `"x"`}, "array": {"[]", "1"}, "object": {"{}", "1"},
		}[p.Type]
		switch good := wellSpelt()[member]; {
		case p.Type == "":
			out[member] = value{"{}", ""}
		case good != "":
			out[member] = value{good, out[member].bad}
		}
	}
	return out
}
