package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
)

// leafVerbs are the commands that do something, by their path without "ronbox".
func leafVerbs(t testing.TB) map[string]*cobra.Command {
	t.Helper()
	out := map[string]*cobra.Command{}
	for _, cmd := range commands(root(new(cli.App))) {
		if !cmd.HasSubCommands() {
			out[strings.TrimPrefix(cmd.CommandPath(), "ronbox ")] = cmd
		}
	}
	if len(out) < 30 {
		t.Fatalf("only %d verbs", len(out))
	}
	return out
}

// commandWords are the words of a command line up to what a shell would take for itself.
func commandWords(line string) []string {
	for _, end := range []string{" | ", " > ", " >> ", " && ", " & ", " << ", " # ", " ; "} {
		line, _, _ = strings.Cut(line+" ", end)
	}
	return shellWords(strings.TrimRight(line, " )"))
}

// shellWords splits a line at its spaces, but for those between double quotes.
func shellWords(line string) []string {
	var out []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

var htmlTag = regexp.MustCompile(`<[^ =>]+>`) // as Markdown knows them

// Whoever asks for help is told what the verb does at some length, and shown how it is called.
func TestEveryVerbExplainsItself(t *testing.T) {
	for path, cmd := range leafVerbs(t) {
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s: short %t, long %t, example %t", path, cmd.Short != "", cmd.Long != "", cmd.Example != "")
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short help is a sentence in a list, without a full stop", path)
		}
		for line := range strings.Lines(cmd.Long) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 90 && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: a line of %d columns: %s", path, n, line)
			}
		}
		told := cmd.Short + cmd.Long + cmd.LocalFlags().FlagUsages() + cmd.InheritedFlags().FlagUsages()
		if tag := htmlTag.FindString(told); tag != "" {
			t.Errorf("%s: a manual page would lose %s", path, tag)
		}
		_, flags, _ := strings.Cut(cmd.UsageString(), "\nFlags:\n")
		for line := range strings.Lines(flags) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
				t.Errorf("%s: a flag takes a line of %d columns: %s", path, n, line)
			}
		}
	}
}

// An example is a command line that this binary takes: its verb, its flags, its number of arguments.
func TestExamplesAreTaken(t *testing.T) {
	for path, cmd := range leafVerbs(t) {
		calls := 0
		for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", "")) {
			_, rest, found := strings.Cut(strings.TrimSpace(line), "ronbox ")
			if !found || strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			root := root(new(cli.App))
			verb, args, err := root.Find(commandWords(rest))
			if err == nil {
				err = verb.ParseFlags(args)
			}
			if err == nil {
				err = verb.ValidateArgs(verb.Flags().Args())
			}
			if err == nil {
				err = verb.ValidateRequiredFlags()
			}
			if err != nil {
				t.Errorf("%s: example %q: %v", path, strings.TrimSpace(line), err)
			}
			if verb.CommandPath() == "ronbox "+path {
				calls++
			}
		}
		if calls == 0 {
			t.Errorf("%s: no example calls it", path)
		}
	}
}

// A flag never takes a secret: what it names is a file, or the public side of one. An idempotency key is none.
func TestNoFlagTakesASecret(t *testing.T) {
	secret := regexp.MustCompile(`token|secret|password|key|seed`)
	for path, cmd := range leafVerbs(t) {
		for _, name := range flagNames(cmd) {
			f := cmd.Flag(name)
			if secret.MatchString(name) && f.Value.Type() != "bool" && !strings.Contains(f.Usage, "file") && !strings.Contains(f.Usage, "public key") && !strings.Contains(f.Usage, "idempotency") {
				t.Errorf("%s --%s: %s", path, name, f.Usage)
			}
			if f.Usage == "" {
				t.Errorf("%s --%s says nothing of itself", path, name)
			}
		}
	}
}

// flagNames reads the names out of the help, which shows all a person can give.
func flagNames(cmd *cobra.Command) []string {
	var out []string
	for _, m := range regexp.MustCompile(`--([a-z0-9-]+)`).FindAllStringSubmatch(cmd.LocalFlags().FlagUsages()+cmd.InheritedFlags().FlagUsages(), -1) {
		if cmd.Flag(m[1]) != nil {
			out = append(out, m[1])
		}
	}
	return out
}

// Help is for people who ask for what is there.
func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		line string
		code int
		want string
	}{
		{"help db restore", cli.ExitDone, "Make a snapshot the database"},
		{"help", cli.ExitDone, "One node, one binary"},
		{"db", cli.ExitDone, "Look after the database file"},
		{"help db restor", cli.ExitUsage, "did you mean restore?"},
		{"help tokn", cli.ExitUsage, "did you mean token?"},
		{"db --json", cli.ExitUsage, "want a verb"},
		{"--json", cli.ExitUsage, "want a verb"},
	} {
		if r := ronbox(t, strings.Fields(tt.line)...); r.code != tt.code || !strings.Contains(r.stdout+r.stderr, tt.want) {
			t.Errorf("%s: exit %d\n%s%s", tt.line, r.code, r.stdout, r.stderr)
		}
	}
}

// shown is a command line of a transcript that ended neither as a usage error nor for want of a node.
type shown struct{ human, json bool }

// withoutTranscript are the verbs that no transcript can hold.
var withoutTranscript = map[string]string{
	"serve": "the direction `> start` runs it; it prints its log, not a result",
}

// Every verb is seen at work in a transcript: once as people read it, once with --json.
func TestEveryVerbHasATranscript(t *testing.T) {
	seen := transcribed(t)
	for path := range leafVerbs(t) {
		if withoutTranscript[path] != "" {
			continue
		}
		if s := seen[path]; !s.human || !s.json {
			t.Errorf("testdata has no command line of %q that works: for people %t, with --json %t", path, s.human, s.json)
		}
	}
}

var refusedLine = regexp.MustCompile(`^exit (2|4)$`)

func transcribed(t *testing.T) map[string]shown {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]shown{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split("\n"+string(raw), "\n$ ronbox ")[1:] {
			lines := strings.Split(block, "\n")
			if slices.ContainsFunc(lines, refusedLine.MatchString) {
				continue
			}
			words := commandWords(lines[0])
			cmd, _, err := root(new(cli.App)).Find(words)
			if err != nil {
				continue
			}
			path := strings.TrimPrefix(cmd.CommandPath(), "ronbox ")
			s := out[path]
			if slices.Contains(words, "--json") {
				s.json = true
			} else {
				s.human = true
			}
			out[path] = s
		}
	}
	return out
}
