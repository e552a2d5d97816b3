package node

import (
	"cmp"
	"context"
	_ "embed" // of the explanations
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi"
)

// The kinds of codes.
const (
	kindProblem = "problem" // reason of a refusal of the API
	kindExit    = "exit"    // exit code of a command
	kindReady   = "ready"   // readiness key
	kindState   = "state"   // of a service
)

// explained has a block for each code that is not a problem: a line with its kind and the code,
// then the members of an explanation. Problems are explained by the tables of refusals.
//
//go:embed explain.txt
var explained string

// explanation describes a code.
type explanation struct {
	Kind    string   `json:"kind"`
	Code    string   `json:"code"`
	Cause   string   `json:"cause,omitzero"` // the details.cause of a problem for which this holds; empty: any
	Means   string   `json:"means"`
	Changed string   `json:"changed,omitzero"` // by the request or the command; empty for readiness keys
	Next    string   `json:"next"`
	Call    string   `json:"call,omitzero"`     // what to do over HTTP, if not Next
	Answers []answer `json:"answers,omitempty"` // of services, to a request with this problem
	Topic   string   `json:"topic"`             // of the manual
}

// answer is the form in which a service answers with a problem.
type answer struct {
	Service   string `json:"service"`
	Status    int    `json:"status"`
	Retryable bool   `json:"retryable"`
}

// ExplainCommand returns the verb that explains codes.
func ExplainCommand(c *cli.App) *cobra.Command { return app{c}.explainCmd() }

func (a app) explainCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Explain a reason of a refusal, an exit code, a readiness key or a state",
		Long: `Explain a code: what it means, whether something was changed, and what to do next. CODE is
the reason of a problem, such as insufficient_funds, its whole type
(urn:ronbox:problem:wallet:nonce_gap), an exit code, a readiness key or
the state of a service in ` + "`ronbox status`" + `. Without CODE it lists all codes. No node
is contacted.`,
		Example: `  ronbox explain urn:ronbox:problem:wallet:insufficient_funds
  ronbox explain 74
  ronbox explain registry.fork_guard --json`,
		Args: cli.AtMost(1, "at most one code"),
		RunE: a.Verb(func(_ context.Context, args []string) error { return a.explain(args) }),
	}
}

// explainDoc is the output of explain.
type explainDoc struct {
	Explanations []explanation `json:"explanations"`
}

func (a app) explain(args []string) error {
	node, err := server.New(config.Default(), a.Build, server.Options{})
	if err != nil {
		return fmt.Errorf("wire the node: %w", err)
	}
	all := explanations(explained, node.Refusals())
	if len(args) == 0 {
		return a.Show(explainDoc{all}, func(t cli.Table) {
			t.Row("KIND", "CODE", "MEANS")
			for _, e := range all {
				t.Row(e.Kind, e.name(), cli.Clip(e.Means, 100))
			}
		})
	}
	found := explanationsOf(all, args[0])
	if len(found) == 0 {
		return unexplained(all, args[0])
	}
	return a.Show(explainDoc{found}, func(t cli.Table) {
		for i, e := range found {
			if i > 0 {
				t.Row()
			}
			explanationRows(t, e)
		}
	})
}

// explanations returns an explanation for each row of the refusals, and those in text.
func explanations(text string, refusals []httpapi.Refusal) (out []explanation) {
	for _, r := range refusals {
		e := explanation{
			Kind: kindProblem, Code: r.Reason, Cause: r.Cause,
			Means: r.Means, Changed: r.Changed, Next: r.Next, Call: r.Call,
		}
		i := slices.IndexFunc(out, func(o explanation) bool {
			o.Answers = nil
			return reflect.DeepEqual(o, e)
		})
		if i < 0 {
			i = len(out)
			out = append(out, e)
		}
		if one := (answer{r.Service, r.Status, r.Retry}); !slices.Contains(out[i].Answers, one) {
			out[i].Answers = append(out[i].Answers, one)
		}
	}
	slices.SortStableFunc(out, func(a, b explanation) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Cause, b.Cause))
	})
	out = append(out, written(text)...)
	for i := range out {
		out[i].Topic = topicOf(out[i].Answers)
	}
	return out
}

// topics are the pages of the manual about a service.
var topics = map[string]string{
	"wallet": "money", "ledger": "money", "registry": "registry-in-production", "rewarder": "rewards",
	"edge": "maps-and-sites", "index": "names", "cluster": "clusters",
}

// topicOf returns the page of the manual about the only service that gives answers, or else the one
// that goes by symptom.
func topicOf(answers []answer) string {
	topic := ""
	for i, by := range answers {
		if i > 0 && topics[by.Service] != topic {
			return "troubleshooting"
		}
		topic = topics[by.Service]
	}
	return cmp.Or(topic, "troubleshooting")
}

// written returns the explanations in text.
func written(text string) (out []explanation) {
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		head, rest, _ := strings.Cut(block, "\n")
		e := explanation{}
		e.Kind, e.Code, _ = strings.Cut(head, " ")
		for line := range strings.SplitSeq(rest, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "means":
				e.Means = value
			case "changed":
				e.Changed = value
			case "next":
				e.Next = value
			}
		}
		out = append(out, e)
	}
	return out
}

// problemURN begins the type of each problem; the service and the reason follow.
const problemURN = "urn:ronbox:problem:"

// explanationsOf returns the explanations of a code.
func explanationsOf(all []explanation, code string) (out []explanation) {
	if urn, ok := strings.CutPrefix(code, problemURN); ok {
		service, reason, _ := strings.Cut(urn, ":")
		return answeredBy(all, func(e explanation, by answer) bool { return e.Code == reason && by.Service == service })
	}
	key, _, _ := strings.Cut(code[strings.LastIndexByte(code, '.')+1:], ":") // node.task:http: the key task
	for _, e := range all {
		if strings.EqualFold(e.Code, code) || e.Kind == kindReady && e.Code == key {
			out = append(out, e)
		}
	}
	if out == nil && code != "" {
		out = answeredBy(all, func(e explanation, _ answer) bool { return e.Cause == code })
	}
	return out
}

// answeredBy returns the explanations with an answer that is wanted, with only these answers.
func answeredBy(all []explanation, wanted func(explanation, answer) bool) (out []explanation) {
	for _, e := range all {
		e.Answers = slices.DeleteFunc(slices.Clone(e.Answers), func(by answer) bool { return !wanted(e, by) })
		if len(e.Answers) > 0 {
			out = append(out, e)
		}
	}
	return out
}

// unexplained returns the failure for an unknown code, with the known code closest to it.
func unexplained(all []explanation, code string) error {
	if status, err := strconv.Atoi(code); err == nil && status >= 400 && status < 600 {
		return cli.Usage("%s is an HTTP status: explain the member \"reason\" of the answer", code)
	}
	if reason, ok := strings.CutPrefix(code, problemURN+"cli:"); ok {
		return cli.Usage("%s is a failure of the command itself: its \"detail\" and \"details.next\" say more; "+
			"explain its exit code, \"details.exit\"", reason)
	}
	asked := code[strings.LastIndexByte(code, ':')+1:]
	var known []string
	for _, e := range all {
		known = append(known, e.Code)
	}
	slices.Sort(known)
	hint := "`ronbox explain` lists all codes"
	if near := unit.Nearest(asked, slices.Compact(known)); near != "" {
		hint = "did you mean " + near + "?"
	}
	return cli.Usage("%q is no known code; %s", code, hint)
}

// name returns the code, with its cause if the explanation is of one.
func (e *explanation) name() string {
	if e.Cause == "" {
		return e.Code
	}
	return e.Code + ", cause " + e.Cause
}

func explanationRows(t cli.Table, e explanation) {
	t.Row(map[string]string{
		kindProblem: "problem", kindExit: "exit code", kindReady: "readiness key", kindState: "state",
	}[e.Kind], e.name())
	t.Row("means", e.Means)
	t.Opt("changed", e.Changed)
	t.Row("next", e.Next)
	t.Opt("over HTTP", e.Call)
	answers := slices.SortedFunc(slices.Values(e.Answers), func(a, b answer) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Status, b.Status))
	})
	for i, by := range answers {
		line := fmt.Sprintf("%s: status %d", by.Service, by.Status)
		if by.Retryable {
			line += ", retryable"
		}
		t.Row(map[bool]string{true: "answered by"}[i == 0], line)
	}
	t.Row("more", "ronbox help "+e.Topic)
}
