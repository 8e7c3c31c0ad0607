//go:build integration && unix

package engines

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/servers"
)

// The Pythons that have the packages of requirements.txt and spark/requirements.txt, and the folder
// with the jars of spark/pom.xml. make sets those of the engines that it tests.
const (
	pythonEnv = "FENCEPOST_ENGINES"
	sparkEnv  = "FENCEPOST_SPARK"
	jarsEnv   = "FENCEPOST_SPARK_JARS"
)

// installed returns the engines that are there, with their Pythons.
func installed(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	if python := os.Getenv(pythonEnv); python != "" {
		for _, name := range []string{"delta-rs", "polars", "duckdb"} {
			all[name] = python
		}
	}
	if python := os.Getenv(sparkEnv); python != "" {
		all["spark"] = python
	}
	if len(all) == 0 {
		t.Fatal("no engine is there: run make engines or make engines-spark, which install them")
	}
	return all
}

// engine is a process that runs engines.py. It is for one goroutine.
type engine struct {
	name    string
	version string
	cmd     *exec.Cmd
	in      io.Writer
	out     *bufio.Scanner
	printed string
}

// patience is how long an engine may take to answer. Spark also starts in this time.
const patience = 5 * time.Minute

// start starts an engine. It ends with the test.
func start(t *testing.T, name, python string, env []string) *engine {
	t.Helper()
	dir := t.TempDir()
	script, err := filepath.Abs("engines.py")
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{name: name, cmd: exec.Command(python, script, name), printed: filepath.Join(dir, "printed")}
	e.cmd.Dir = dir
	e.cmd.Env = append(os.Environ(), env...)
	// Some engines take an empty variable for a value.
	e.cmd.Env = slices.DeleteFunc(e.cmd.Env, func(kv string) bool { return strings.HasPrefix(kv, "AWS_") && strings.HasSuffix(kv, "=") })
	errs, err := os.Create(e.printed)
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	e.cmd.Stderr = errs
	out, child, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	e.cmd.Stdout = child
	in, err := e.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	ended, err := servers.Spawn(e.cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL) // the group: Spark's Java too
		<-ended
		out.Close()
	})
	e.in, e.out = in, bufio.NewScanner(out)
	e.out.Buffer(nil, 1<<20)
	if err := e.ask(map[string]any{"do": "version"}, &e.version); err != nil {
		t.Fatal(err)
	}
	return e
}

// ask sends a request and waits for the answer.
func (e *engine) ask(request map[string]any, into any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	late := time.AfterFunc(patience, func() { _ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	if _, err := fmt.Fprintf(e.in, "%s\n", line); err != nil {
		return fmt.Errorf("%s: %w\n%s", e.name, err, e.words())
	}
	if !e.out.Scan() {
		return fmt.Errorf("%s has ended, or did not answer %s within %v\n%s", e.name, line, patience, e.words())
	}
	var said struct {
		Answer json.RawMessage
		Error  string
	}
	if err := json.Unmarshal(e.out.Bytes(), &said); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	if said.Error != "" {
		return fmt.Errorf("%s: %s: %s\n%s", e.name, line, said.Error, e.words())
	}
	return json.Unmarshal(said.Answer, into)
}

// read reads a table, at a version if that is not negative.
func (e *engine) read(table string, version int) (c content, err error) {
	request := map[string]any{"do": "read", "table": table}
	if version >= 0 {
		request["version"] = version
	}
	return c, e.ask(request, &c)
}

// words are the last lines that the engine has printed.
func (e *engine) words() string {
	b, _ := os.ReadFile(e.printed)
	lines := strings.Split(string(b), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
