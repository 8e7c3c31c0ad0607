// Package java tests the example in Java, whose client is generated from the agent's schema: make java-client.
package java
