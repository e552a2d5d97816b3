package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ronbox/cmd/ronbox/cli"
)

// leafVerbs returns the commands without sub-commands, by path without "ronbox".
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

// commandWords splits a command line into words, up to the first shell operator.
func commandWords(line string) []string {
	for _, end := range []string{" | ", " > ", " >> ", " && ", " & ", " << ", " # ", " ; "} {
		line, _, _ = strings.Cut(line+" ", end)
	}
	return shellWords(strings.TrimRight(line, " )"))
}

// shellWords splits a line at spaces outside double quotes.
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

var htmlTag = regexp.MustCompile(`<[^ =>]+>`) // as Markdown parses it

// The help of every verb has a short description, a long description and an example.
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

// Every example is a command line that the binary accepts: its verb, its flags and its number of
// arguments.
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

var quotedVerb = regexp.MustCompile("`ronbox ([^`]+)`")

// The explanations of codes name commands that exist. A group with examples is a command itself.
func TestExplanationsNameVerbs(t *testing.T) {
	r := ronbox(t, "explain", "--json")
	named := quotedVerb.FindAllStringSubmatch(r.stdout, -1)
	if len(named) < 50 {
		t.Fatalf("only %d commands: %.300s", len(named), r.stdout+r.stderr)
	}
	for _, m := range named {
		verb, _, err := root(new(cli.App)).Find(commandWords(m[1]))
		if group := verb.HasSubCommands() && verb.Example == ""; err != nil || group || verb.Root() == verb {
			t.Errorf("%s: no such verb: %v", m[1], err)
		}
	}
}

// No flag takes a secret as its value: a flag takes a file name or a public key instead. An
// idempotency key is not a secret.
func TestNoFlagTakesASecret(t *testing.T) {
	secret := regexp.MustCompile(`token|secret|password|key|seed`)
	for path, cmd := range leafVerbs(t) {
		for _, name := range flagNames(cmd) {
			f := cmd.Flag(name)
			if secret.MatchString(name) && f.Value.Type() != "bool" && !strings.Contains(f.Usage, "file") &&
				!strings.Contains(f.Usage, "public key") &&
				!strings.Contains(f.Usage, "idempotency") {
				t.Errorf("%s --%s: %s", path, name, f.Usage)
			}
			if f.Usage == "" {
				t.Errorf("%s --%s says nothing of itself", path, name)
			}
		}
	}
}

// The help names the value of a flag by a word, not by its type in Go.
func TestPlaceholdersAreWords(t *testing.T) {
	typed := regexp.MustCompile(`^(u?int|float)\d*$|^(string|bool|duration|count|ip|bytes)|(Slice|Array|s)?(To\w+)$|^(int|string)s$`)
	for path, cmd := range leafVerbs(t) {
		for _, name := range flagNames(cmd) {
			f := cmd.Flag(name)
			if word, _ := pflag.UnquoteUsage(f); word != "" && typed.MatchString(word) && !strings.Contains(f.Usage, "`") {
				t.Errorf("%s --%s: %s", path, name, word)
			}
		}
	}
}

// Older words of verbs and flags still work, and no help shows them.
func TestOtherWords(t *testing.T) {
	for line, want := range map[string]string{
		"edge ls":                                "edge list",
		"index rm a":                             "index remove",
		"registry get 1":                         "registry show",
		"token ls":                               "token list",
		"wallet pay a b 1 --key k":               "wallet transfer",
		"wallet send a b 1 --idempotency-key k":  "wallet transfer",
		"registry apply f --key k":               "registry apply",
		"registry export --out d":                "registry export",
		"rewarder policy sign f --key k --out o": "rewarder policy sign",
		"ledger export --from 2 --out f":         "ledger export",
		"ledger verify --from 2":                 "ledger verify",
		"audit export --from 2":                  "audit export",
		"registry audit --from 2":                "registry audit",
	} {
		cmd, args, err := root(new(cli.App)).Find(strings.Fields(line))
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err != nil || cmd.CommandPath() != "ronbox "+want {
			t.Errorf("%s: %s, %v", line, cmd.CommandPath(), err)
		}
		if help := cmd.UsageString(); strings.Contains(help, "Aliases") || strings.Contains(help, "--key ") ||
			strings.Contains(help, "--from ") {
			t.Errorf("%s: %s", line, help)
		}
	}
}

// flagNames returns the flags that the help of a command shows.
func flagNames(cmd *cobra.Command) []string {
	var out []string
	usages := cmd.LocalFlags().FlagUsages() + cmd.InheritedFlags().FlagUsages()
	for _, m := range regexp.MustCompile(`--([a-z0-9-]+)`).FindAllStringSubmatch(usages, -1) {
		if cmd.Flag(m[1]) != nil {
			out = append(out, m[1])
		}
	}
	return out
}

// Help exits with 0 for a known topic and with a usage error for an unknown one.
func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		line string
		code int
		want string
	}{
		{"help db restore", cli.ExitDone, "Restore a snapshot as the database"},
		{"help", cli.ExitDone, "One node, one binary"},
		{"help first-hour", cli.ExitDone, "# The first hour"},
		{"help first-hours", cli.ExitUsage, "did you mean first-hour?"},
		{"help help", cli.ExitDone, "first-hour"},
		{"db", cli.ExitDone, "Inspect, back up and maintain the database"},
		{"help db restor", cli.ExitUsage, "did you mean restore?"},
		{"help tokn", cli.ExitUsage, "did you mean token?"},
		{"db --json", cli.ExitUsage, "want a verb"},
		{"--json", cli.ExitUsage, "want a verb"},
	} {
		if r := ronbox(
			t,
			strings.Fields(tt.line)...); r.code != tt.code ||
			!strings.Contains(r.stdout+r.stderr, tt.want) {
			t.Errorf("%s: exit %d\n%s%s", tt.line, r.code, r.stdout, r.stderr)
		}
	}
}

// shown records whether a transcript has a command line that succeeded with human output and one
// with --json. Usage errors and calls without a node do not count.
type shown struct{ human, json bool }

// withoutTranscript lists the verbs that a transcript cannot run, with the reason.
var withoutTranscript = map[string]string{
	"demo":  "demo_test.go runs it in a process of its own, which starts and kills its node",
	"serve": "the direction `> start` runs it; it prints its log, not a result",
	// package rewarder tests it with a registry and nodes of its own
	"rewarder collect": "it needs an epoch that is over, of a registry that is older than its end",
	// the tour of a cluster runs it
	"cluster transfer": "it needs a second member that has been promoted to a voter",
}

// The transcripts run every verb once with human output and once with --json.
func TestEveryVerbHasATranscript(t *testing.T) {
	seen := transcribed(t)
	for path := range leafVerbs(t) {
		if withoutTranscript[path] != "" {
			continue
		}
		if s := seen[path]; !s.human || !s.json {
			t.Errorf("testdata has no command line of %q that works: for people %t, with --json %t", path, s.human,
				s.json)
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
