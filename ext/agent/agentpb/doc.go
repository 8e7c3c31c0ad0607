// Package agentpb has the messages of agent.proto. They are generated, and committed, because go install and go get run no
// generator.
package agentpb
