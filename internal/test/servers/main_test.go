//go:build unix

package servers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"testing"
)

// roleEnv makes the test binary a server. So starting and ending a server is tested
// without installing any.
const roleEnv = "FENCEPOST_SERVERS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "server":
		// As much of S3 as HeadBucket needs.
		fmt.Println("serving", os.Args[1])
		err := http.ListenAndServe(os.Args[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, os.Getpid())
		}))
		fmt.Println(err)
		os.Exit(1)
	case "broken":
		fmt.Println("no such drive")
		os.Exit(7)
	case "parent":
		// Starts a child as Start does, prints its process id, and waits to be killed.
		cmd := exec.Command("sleep", "600")
		p, err := spawn(cmd)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.pid)
		<-p.done
		os.Exit(3)
	}
}

// fake returns a kind that runs this test binary in a role.
func fake(t *testing.T, role string) *Kind {
	t.Setenv("FENCEPOST_SERVERS", t.TempDir())
	return &Kind{
		Name: "fake-" + role, Version: "v0",
		install: func(context.Context, string, string) error { return nil },
		command: func(_, _, addr string) (argv, env []string) {
			return []string{os.Args[0], addr}, []string{roleEnv + "=" + role}
		},
		access: access, secret: secret,
	}
}
