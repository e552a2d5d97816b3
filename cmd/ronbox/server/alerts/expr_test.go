package alerts_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// query describes an expression. The parser covers only the syntax of the shipped rules and refuses
// any other. It finds names that do not exist on machines without promtool.
type query struct {
	selectors []selector
	labels    []string // labels of its groupings and matchers
	kept      []string // labels that its groupings keep; nil: all
}

// selector is a metric with its matchers.
type selector struct {
	name     string
	matchers []matcher
}

type matcher struct{ label, op, value string }

// These are the allowed words other than metrics. promtool knows more.
var (
	functions = []string{
		"abs",
		"absent",
		"changes",
		"count_over_time",
		"increase",
		"max_over_time",
		"predict_linear",
		"rate",
		"sum",
		"time",
	}
	operators = []string{"and", "or", "unless"}
	groupings = []string{"by", "on"}
)

var lexeme = regexp.MustCompile(
	`^(?:\s+|[a-zA-Z_:][a-zA-Z0-9_:]*|\[[0-9]+[smhd](?::[0-9]+[smhd])?\]|[0-9.]+|"[^"]*"|=~|!~|!=|==|>=|<=|[-+*/<>=(){},])`,
)

// lexemes splits an expression into tokens.
func lexemes(expr string) (words []string, err error) {
	for expr != "" {
		word := lexeme.FindString(expr)
		if word == "" {
			return nil, fmt.Errorf("%q is not understood", expr)
		}
		expr = expr[len(word):]
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words, nil
}

// parse reads an expression.
func parse(expr string) (q query, err error) {
	words, err := lexemes(expr)
	if err != nil {
		return q, err
	}
	open := 0
	for i := 0; i < len(words); i++ {
		word := words[i]
		after := append(words[i+1:], "")[0]
		switch {
		case word == "(":
			open++
		case word == ")":
			if open--; open < 0 {
				return q, fmt.Errorf("a bracket closes that was not opened")
			}
		case !isName(word), slices.Contains(operators, word):
		case slices.Contains(groupings, word):
			end := slices.Index(words[i:], ")")
			if after != "(" || end < 0 {
				return q, fmt.Errorf("%s wants labels in brackets", word)
			}
			named := slices.DeleteFunc(slices.Clone(words[i+2:i+end]), func(w string) bool { return w == "," })
			if q.labels = append(q.labels, named...); word == "by" {
				q.kept = append(q.kept, named...)
			}
			i += end
		case after == "(" || slices.Contains(groupings, after):
			if !slices.Contains(functions, word) {
				return q, fmt.Errorf("%s is no function that is known here: add it, if Prometheus has it", word)
			}
		default:
			s := selector{name: word}
			if after == "{" {
				end := slices.Index(words[i:], "}")
				if end < 0 {
					return q, fmt.Errorf("the labels of %s do not end", word)
				}
				if s.matchers, err = matchers(words[i+2 : i+end]); err != nil {
					return q, fmt.Errorf("%s: %w", word, err)
				}
				i += end
			}
			q.selectors = append(q.selectors, s)
		}
	}
	if open > 0 {
		return q, fmt.Errorf("a bracket does not close")
	}
	return q, nil
}

func isName(word string) bool { return regexp.MustCompile(`^[a-zA-Z_:]`).MatchString(word) }

// matchers parses label matchers separated by commas.
func matchers(words []string) (out []matcher, err error) {
	for ; len(words) >= 3; words = words[min(4, len(words)):] {
		m := matcher{words[0], words[1], strings.Trim(words[2], `"`)}
		if !isName(m.label) || !slices.Contains([]string{"=", "!=", "=~", "!~"}, m.op) ||
			!strings.HasPrefix(words[2], `"`) ||
			len(words) > 3 && words[3] != "," {
			return nil, fmt.Errorf("%q is no matcher", words)
		}
		out = append(out, m)
	}
	if len(words) > 0 || len(out) == 0 {
		return nil, fmt.Errorf("%q is no matcher", words)
	}
	return out, nil
}

func labelsOf(series *dto.Metric) map[string]string {
	has := map[string]string{}
	for _, l := range series.GetLabel() {
		has[l.GetName()] = l.GetValue()
	}
	return has
}

func (s selector) matches(m *dto.Metric) bool {
	labels := labelsOf(m)
	for _, want := range s.matchers {
		value, known := labels[want.label]
		is := value == want.value
		if strings.HasSuffix(want.op, "~") {
			is = regexp.MustCompile(`^(?:` + want.value + `)$`).MatchString(value)
		}
		if !known || is == strings.HasPrefix(want.op, "!") {
			return false
		}
	}
	return true
}

// Faults of a rule are found without promtool.
func TestWrongAlertsAreFound(t *testing.T) {
	shown := fresh(t)
	sound := alert{
		name:        "x",
		expr:        `sum by (job, service) (rate(queue_dropped_total{service="wallet", queue=~"wor.*"}[1m])) > 0 and on (job) up == 1`,
		severity:    "{severity: warning}",
		lasts:       "5m",
		annotations: []string{`summary: "{{ $labels.service }}"`, `description: "y"`},
	}
	if faults := sound.faults(shown); len(faults) > 0 {
		t.Errorf("a sound one: %q", faults)
	}
	for _, tt := range []struct{ old, new string }{
		{"queue_dropped_total", "queue_droped_total"}, {"queue_dropped_total", "queue_dropped2_total"},
		{"queue_dropped_total", "Queue_dropped_total"},
		{"service=", "svc2="}, {`"wallet"`, `"wallett"`}, {"wor.*", "wok.*"}, {`=~"wor`, `~"wor`}, {", queue",
			" queue"}, {`=~"wor.*"`, ""},
		{"rate(", "rat("}, {"sum by", "summ by"}, {"by (job, service)", "by (job, servic)"},
		{"by (job, service)", "by"}, {"[1m]", "[1minute]"},
		{") > 0", " > 0"}, {") > 0", ")) > 0"}, {"and on", "& on"}, {"}", ""},
	} {
		wrong := sound
		wrong.expr = strings.Replace(sound.expr, tt.old, tt.new, 1)
		if wrong.expr == sound.expr || len(wrong.faults(shown)) == 0 {
			t.Errorf("%s passes", wrong.expr)
		}
	}
	for _, spoil := range []func(*alert){
		func(a *alert) { a.severity = "{severity: bad}" }, func(a *alert) { a.lasts = "5 minutes" },
		func(a *alert) { a.expr = "" },
		func(a *alert) { a.annotations = a.annotations[:1] },
		func(a *alert) { a.annotations = []string{"summary: {{ $labels.queue }}", "description: y"} },
	} {
		wrong := sound
		if spoil(&wrong); len(wrong.faults(shown)) == 0 {
			t.Errorf("%+v passes", wrong)
		}
	}
}
