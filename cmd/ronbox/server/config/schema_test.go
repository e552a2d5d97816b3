package config

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// compiled returns the compiled Schema.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("ronbox.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("ronbox.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// decoded decodes a TOML document to the values that the schema validates.
func decoded(t testing.TB, text string) any {
	t.Helper()
	var doc map[string]any
	if err := toml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// The schema accepts every document that the loader accepts.
func TestSchemaTakesWhatIsValid(t *testing.T) {
	s := compiled(t)
	plain := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(Template(nil), "$1")
	if err := s.Validate(decoded(t, plain)); err != nil {
		t.Errorf("the commented file: %v", err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		text, err := toml.Marshal(drawConfig(rt))
		if err != nil {
			rt.Fatal(err)
		}
		if err := s.Validate(decoded(t, string(text))); err != nil {
			rt.Fatalf("%v in\n%s", err, text)
		}
	})
}

func TestSchemaRefuses(t *testing.T) {
	s := compiled(t)
	for _, text := range []string{
		"[store]\nmax_byts = \"1GiB\"\n", "[zebra]\n", "server = 5\n", "[server]\nbind = 8080\n",
		"[server]\nmax_conns = \"8\"\n",
		"[node]\ndrain_cap = \"soon\"\n", "[store]\nmax_bytes = 5\n", "[log]\nlevel = \"loud\"\n",
		"[server]\nmetrics_allow = [1]\n",
		"[registry]\nbus.emit_updates = 3\n", "[otel]\nsample_reads = \"all\"\n", "[uds]\nallow_uids = [-1]\n",
	} {
		if s.Validate(decoded(t, text)) == nil {
			t.Errorf("the schema takes %q", text)
		}
	}
}

// Every key has a description, for the commented file and for the schema.
func TestEveryKeyIsDescribed(t *testing.T) {
	told := descriptions(commented)
	for _, l := range leaves(Default()) {
		if told[l.key] == "" {
			t.Errorf("%s has no comment", l.key)
		}
	}
}
