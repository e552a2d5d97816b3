package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/manual"
	"ronbox/cmd/ronbox/server/alerts"
	"ronbox/httpapi/scopes"
)

// unrun maps the markers of blocks that the tests do not run to the reason. A marker follows the
// language of a block, in parentheses.
var unrun = map[string]string{
	"client":   "TestPayClient runs it",
	"checkout": "it builds the program, which takes minutes and the tests have done",
	"machines": "it needs several machines, or a network",
	"package":  "it needs root, and a machine that systemd has booted or that runs containers",
	"tour":     "TestTours runs it",
}

// serves marks a block whose last command runs until the end of its page: a node.
const serves = "serves"

// docBlock is a fenced block of commands.
type docBlock struct {
	line   int // of the fence
	marker string
	steps  []docStep
}

// docStep is a command and the lines that the page shows of its output.
type docStep struct {
	line  int
	text  string
	fails bool // "# exit N" ends the command: it must exit with N
	code  string
	shown []string
}

var (
	fence    = regexp.MustCompile("^```(console|sh)(?: \\(([a-z]+)\\))?$")
	exitNote = regexp.MustCompile(`# exit ([0-9]+)\b`)
)

// blocksOf returns the blocks of commands of a page.
func blocksOf(t *testing.T, page, text string) (out []docBlock) {
	t.Helper()
	open := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			m := fence.FindStringSubmatch(line)
			if open = !open && m != nil; open {
				out = append(out, docBlock{line: i + 1, marker: m[2]})
			}
			continue
		}
		if !open {
			continue
		}
		b := &out[len(out)-1]
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch last := len(b.steps) - 1; {
		case isCommand:
			s := docStep{line: i + 1, text: command}
			if m := exitNote.FindStringSubmatch(command); m != nil {
				s.fails, s.code = true, m[1]
			}
			b.steps = append(b.steps, s)
		case last < 0:
			b.steps = append(b.steps, docStep{line: i + 1, text: line}) // a block of a script
		case len(b.steps[last].shown) == 0 && strings.HasSuffix(b.steps[last].text, `\`):
			b.steps[last].text += "\n" + line
		default:
			b.steps[last].shown = append(b.steps[last].shown, line)
		}
	}
	if open {
		t.Errorf("%s: a block does not end", page)
	}
	return out
}

// docPages returns README and the pages of the manual, by name.
func docPages(t *testing.T) map[string]string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{"README": string(readme)}
	for _, topic := range manual.Topics() {
		page, ok := manual.Page(topic.Name)
		if !ok {
			t.Fatalf("the topic %s has no page", topic.Name)
		}
		out[topic.Name] = string(page)
	}
	return out
}

// Every block of commands of README and the manual runs, page by page, and prints the lines that
// the page shows: "…" stands for any text, and lines may be left out. A block that does not run is
// marked with a reason of unrun.
func TestManualRuns(t *testing.T) {
	skipRaceOnly(t)
	for _, tool := range []string{"bash", "curl", "jq"} {
		hosttest.Tool(t, tool, tool)
	}
	for name, text := range docPages(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each page waits for its node most of the time
			var run []docBlock
			for _, b := range blocksOf(t, name, text) {
				switch {
				case b.marker == "" || b.marker == serves:
					run = append(run, b)
				case unrun[b.marker] == "":
					t.Errorf("%s:%d: (%s) is no reason why a block does not run", name, b.line, b.marker)
				}
			}
			if len(run) > 0 {
				runPage(t, name, run)
			}
		})
	}
}

// runPage runs the blocks of a page in one shell, in a folder with testdata and a node in data. A
// page without a block that serves gets a dev node.
func runPage(t *testing.T, name string, blocks []docBlock) {
	dir, err := os.MkdirTemp("", "rb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testdata, err := filepath.Abs("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(testdata, filepath.Join(dir, "testdata")); err != nil {
		t.Fatal(err)
	}
	b := &box{dir: filepath.Join(dir, "data")}
	addr := hosttest.FreeAddr(t)
	b.env = append(slices.Concat(os.Environ(), patient), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "HOME="+dir,
		"TMPDIR="+dir, "RONBOX_NODE__DATA_DIR="+b.dir, "RONBOX_SERVER__BIND="+addr, "RONBOX_LOG__LEVEL=warn")
	served := slices.ContainsFunc(blocks, func(b docBlock) bool { return b.marker == serves })
	if !served {
		made := ronboxWith(t, t.Context(), b.env, "", "init", "--dev")
		if made.code != cli.ExitDone {
			t.Fatalf("%s%s", made.stdout, made.stderr)
		}
		b.start(t)
		b.awaitRunning(t)
	}
	sh := newShell(t, dir, b.env)
	for _, block := range blocks {
		for i, step := range block.steps {
			where := fmt.Sprintf("%s:%d", name, step.line)
			step.text = strings.NewReplacer("localhost:8080", addr, "127.0.0.1:8080", addr).Replace(step.text)
			if block.marker == serves && i == len(block.steps)-1 {
				p := &process{stderr: b.prepare().stderr, done: make(chan struct{})}
				p.cmd = exec.Command("bash", "-c", "exec "+step.text)
				p.cmd.Dir, p.cmd.Env = dir, b.env
				p.cmd.Stdout, p.cmd.Stderr = p.stderr, p.stderr
				p.begin(t, &syscall.SysProcAttr{})
				b.awaitPlane(t, p, "write")
				b.awaitRunning(t)
				continue
			}
			sh.step(t, where, step)
		}
	}
}

// awaitRunning waits until nothing of the node is missing.
func (b *box) awaitRunning(t *testing.T) {
	t.Helper()
	c := b.client(t)
	until(t, "the node is running", func() bool {
		s, err := c.Status(t.Context())
		return err == nil && s.Phase == "running" && s.Ready && !s.Degraded
	})
}

// shell is a bash that runs the commands of a page.
type shell struct {
	in  io.Writer
	out *bufio.Reader
}

func newShell(t *testing.T, dir string, env []string) *shell {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc")
	cmd.Dir, cmd.Env = dir, env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if _, err := io.WriteString(in, "exec 2>&1\nset -o pipefail\n"); err != nil {
		t.Fatal(err)
	}
	return &shell{in, bufio.NewReader(out)}
}

const endOfStep = "=== end of a step, exit "

// step runs a command and compares its output and its exit code with the page.
func (s *shell) step(t *testing.T, where string, step docStep) {
	t.Helper()
	if _, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null\nprintf '\\n%s%%d\\n' $?\n", step.text, endOfStep); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	var got []string
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %s: the shell has ended: %v\n%s", where, step.text, err, strings.Join(got, "\n"))
		}
		line = strings.TrimSuffix(line, "\n")
		if code, ok := strings.CutPrefix(line, endOfStep); ok {
			want := "0"
			if step.fails {
				want = step.code
			}
			if code != want {
				t.Fatalf("%s: %s: exit %s, not %s\n%s", where, step.text, code, want, strings.Join(got, "\n"))
			}
			break
		}
		got = append(got, line)
	}
	rest := got
	for _, want := range step.shown {
		if strings.TrimSpace(want) == "…" {
			continue
		}
		like := shownPattern(want)
		at := slices.IndexFunc(rest, func(line string) bool { return like.MatchString(squeezed(line)) })
		if at < 0 {
			t.Errorf("%s: %s: does not print\n%s\nbut\n%s", where, step.text, want, strings.Join(got, "\n"))
			return
		}
		rest = rest[at+1:]
	}
}

// spaces are runs of spaces, as the columns of a table have them.
var spaces = regexp.MustCompile(` +`)

// squeezed returns a line without what differs between runs, and with single spaces.
func squeezed(line string) string {
	line = (&transcript{vars: map[string]string{"T": "no such text"}}).mask(line)
	return strings.TrimSpace(spaces.ReplaceAllString(line, " "))
}

// shownPattern returns a pattern for a line of a page, in which "…" stands for any text.
func shownPattern(line string) *regexp.Regexp {
	parts := strings.Split(squeezed(line), "…")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
}

var (
	docLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	docCode    = regexp.MustCompile("`([^`\n]+)`")
	docHeading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	configKey  = regexp.MustCompile(`^([a-z]+(?:\.[a-z_]+)+)(?: = .+)?$`)
)

// anchors returns the ids of the headings of a page, as goldmark and GitHub make them.
func anchors(text string) (out []string) {
	for _, m := range docHeading.FindAllStringSubmatch(text, -1) {
		id := strings.ToLower(m[1])
		id = regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(id, "")
		out = append(out, strings.ReplaceAll(id, " ", "-"))
	}
	return out
}

// Each page of the manual has its place in the list and a title, is short enough to be read, and
// has no name of a command. Its links lead somewhere.
func TestManualPages(t *testing.T) {
	pages := docPages(t)
	files, err := filepath.Glob("manual/*.md")
	if err != nil || len(files) != len(pages) { // the list is a file, as README is a page
		t.Errorf("%d files, %d pages: %v", len(files), len(pages), err)
	}
	for name, text := range pages {
		for _, program := range clientPrograms(t) { // they have bounds of their own
			text = strings.Replace(text, program, "", 1)
		}
		lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
		least, most := 60, 150
		if name == "README" {
			least, most = 60, 130
		} else if verb, _, err := root(new(cli.App)).Find([]string{name}); err == nil && verb.HasParent() {
			t.Errorf("%s: a command has this name", name)
		}
		if len(lines) < least || len(lines) > most {
			t.Errorf("%s has %d lines, and must have %d to %d", name, len(lines), least, most)
		}
		if !strings.HasPrefix(lines[0], "# ") {
			t.Errorf("%s has no title", name)
		}
		for i, line := range lines {
			if n := len([]rune(line)); n > 120 && (name == "README" || !strings.HasPrefix(line, "|")) {
				t.Errorf("%s:%d: %d columns", name, i+1, n)
			}
		}
		for _, m := range docLink.FindAllStringSubmatch(text, -1) {
			checkLink(t, name, m[1], pages)
		}
	}
}

// checkLink checks a link of a page: to a heading of a page, or of README to a file.
func checkLink(t *testing.T, page, link string, pages map[string]string) {
	t.Helper()
	file, anchor, _ := strings.Cut(link, "#")
	target := page
	if file != "" {
		topic := strings.TrimSuffix(file, ".md")
		if page == "README" {
			if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
				t.Errorf("%s: %v", page, err)
				return
			}
			topic = strings.TrimPrefix(topic, "cmd/ronbox/manual/")
		} else if pages[topic] == "" || topic == "README" {
			t.Errorf("%s: %s is no page of the manual", page, link)
			return
		}
		target = topic
	}
	if anchor != "" && !slices.Contains(anchors(pages[target]), anchor) {
		t.Errorf("%s: %s has no heading #%s", page, target, anchor)
	}
}

// Commands and configuration keys that the text of a page names exist.
func TestManualNamesWhatExists(t *testing.T) {
	keys, sections := configKeys(t)
	named := 0
	for page, text := range docPages(t) {
		for _, m := range docCode.FindAllStringSubmatch(text, -1) {
			if rest, ok := strings.CutPrefix(m[1], "ronbox "); ok && !strings.HasPrefix(rest, "help ") {
				verb, args, err := root(new(cli.App)).Find(commandWords(rest))
				if known := err == nil && verb.HasParent() && verb.ParseFlags(args) == nil; !known {
					t.Errorf("%s: `%s` is no command", page, m[1])
				}
				named++
			}
			key := configKey.FindStringSubmatch(m[1])
			if key == nil || !sections[strings.Split(key[1], ".")[0]] || scopes.CheckAll([]string{key[1]}) == nil {
				continue
			}
			if file := key[1] == "node.key" || key[1] == "archive.key"; !keys[key[1]] && !file {
				t.Errorf("%s: `%s` is no key of the configuration", page, m[1])
			}
			named++
		}
	}
	if named < 1 {
		t.Errorf("only %d names", named)
	}
}

// Explanations and alerts name pages of the manual that exist.
func TestTopicsThatAreNamedExist(t *testing.T) {
	var doc struct {
		Explanations []struct {
			Code  string `json:"code"`
			Topic string `json:"topic"`
		} `json:"explanations"`
	}
	must(t, &doc, "explain", "--json")
	named := regexp.MustCompile("`ronbox help ([a-z-]+)`").FindAllStringSubmatch(alerts.Rules, -1)
	if len(doc.Explanations) < 100 || len(named) == 0 {
		t.Fatalf("%d explanations, %d alerts", len(doc.Explanations), len(named))
	}
	for _, e := range doc.Explanations {
		if _, ok := manual.Page(e.Topic); !ok {
			t.Errorf("explain %s: no topic %q", e.Code, e.Topic)
		}
	}
	for _, m := range named {
		if _, ok := manual.Page(m[1]); !ok {
			t.Errorf("alerts: no topic %q", m[1])
		}
	}
}

// configKeys returns the keys of the configuration and their sections, and the tables in them.
func configKeys(t *testing.T) (keys, sections map[string]bool) {
	t.Helper()
	var doc struct {
		Keys []struct {
			Key string `json:"key"`
		} `json:"keys"`
	}
	must(t, &doc, "config", "show", "--json", "--data-dir", t.TempDir())
	keys, sections = map[string]bool{}, map[string]bool{}
	for _, k := range doc.Keys {
		for at, r := range k.Key {
			if r == '.' {
				keys[k.Key[:at]] = true
			}
		}
		keys[k.Key] = true
		section, _, _ := strings.Cut(k.Key, ".")
		sections[section] = true
	}
	return keys, sections
}
