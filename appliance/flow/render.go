package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// channelDoc is the form of a Spec in JSON.
type channelDoc struct {
	Service   string   `json:"service"`
	Name      string   `json:"name"`
	Kind      Kind     `json:"kind"`
	Cap       int      `json:"cap"`
	Policy    Policy   `json:"policy"`
	Producers []string `json:"producers"`
	Consumers []string `json:"consumers"`
	Doc       string   `json:"doc"`
}

// taskDoc is the form of a Task in JSON.
type taskDoc struct {
	Service    string `json:"service"`
	Name       string `json:"name"`
	Count      int    `json:"count"`
	Restart    string `json:"restart"`
	Background bool   `json:"background"`
	Doc        string `json:"doc"`
}

// JSON returns {"channels": […], "tasks": […], "locks": […]}, sorted and indented.
func (c *Catalog) JSON() ([]byte, error) {
	doc := struct {
		Channels []channelDoc `json:"channels"`
		Tasks    []taskDoc    `json:"tasks"`
		Locks    []Lock       `json:"locks"`
	}{[]channelDoc{}, []taskDoc{}, append([]Lock{}, c.ranks()...)}
	for _, s := range c.Specs() {
		doc.Channels = append(doc.Channels, channelDoc{s.Service, s.Name, s.Kind, s.Cap, s.Policy,
			append([]string{}, s.Producers...), append([]string{}, s.Consumers...), s.Doc})
	}
	for _, t := range c.Tasks() {
		doc.Tasks = append(doc.Tasks, taskDoc{t.Service, t.Name, t.Count, t.Restart.String(), t.Background, t.Doc})
	}
	return json.MarshalIndent(doc, "", "  ")
}

// Markdown returns the catalogue as tables, one section per service: its channels, tasks and locks.
func (c *Catalog) Markdown() string {
	var w strings.Builder
	for i, service := range c.services() {
		if i > 0 {
			w.WriteByte('\n')
		}
		fmt.Fprintf(&w, "### %s\n", service)
		writeChannels(&w, of(c.Specs(), service, func(s Spec) string { return s.Service }))
		writeTasks(&w, of(c.Tasks(), service, func(t Task) string { return t.Service }))
		writeLocks(&w, of(c.ranks(), service, func(l Lock) string { return l.Service }))
	}
	return w.String()
}

// services returns the names of all services that declared something, sorted.
func (c *Catalog) services() []string {
	var names []string
	for _, s := range c.Specs() {
		names = append(names, s.Service)
	}
	for _, t := range c.Tasks() {
		names = append(names, t.Service)
	}
	for _, l := range c.ranks() {
		names = append(names, l.Service)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// of returns what belongs to service.
func of[T any](all []T, service string, owner func(T) string) []T {
	return slices.DeleteFunc(all, func(v T) bool { return owner(v) != service })
}

func writeChannels(w *strings.Builder, specs []Spec) {
	if len(specs) == 0 {
		return
	}
	w.WriteString("\n| Name | Kind | Capacity | Producers → Consumers | Backpressure policy | Drop semantics, what the caller sees |\n")
	w.WriteString("| --- | --- | ---: | --- | --- | --- |\n")
	for _, s := range specs {
		fmt.Fprintf(w, "| `%s` | %s | %s | %s → %s | %s | %s |\n", s.Name, s.Kind, capacity(s), names(s.Producers), names(s.Consumers),
			cell(string(s.Policy)), cell(s.Doc))
	}
}

func writeTasks(w *strings.Builder, tasks []Task) {
	if len(tasks) == 0 {
		return
	}
	w.WriteString("\n| Task | Count | Restart | At drain | Does |\n| --- | ---: | --- | --- | --- |\n")
	for _, t := range tasks {
		drain := "drains"
		if t.Background {
			drain = "cancelled at once"
		}
		fmt.Fprintf(w, "| `%s` | %d | %s | %s | %s |\n", t.Name, t.Count, t.Restart, drain, cell(t.Doc))
	}
}

func writeLocks(w *strings.Builder, locks []Lock) {
	if len(locks) == 0 {
		return
	}
	w.WriteString("\n| Lock | Rank | Count |\n| --- | ---: | ---: |\n")
	for _, l := range locks {
		fmt.Fprintf(w, "| `%s` | %d | %d |\n", l.Name, l.Rank, l.Count)
	}
}

func capacity(s Spec) string {
	if s.Cap == 0 {
		return "-"
	}
	return strconv.Itoa(s.Cap)
}

// names lists producers or consumers in a table cell.
func names(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	shown := slices.Clone(list)
	for i, n := range shown {
		if n == everyTask {
			shown[i] = "every task"
		}
	}
	return strings.Join(shown, ", ")
}

// cell makes text fit a table cell.
func cell(text string) string {
	if text == "" {
		return "-"
	}
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}
