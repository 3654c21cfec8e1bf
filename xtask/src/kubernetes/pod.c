/* What the pods of the bench run, and what holds each pod's namespaces ("pause"): says that it has started, reaps
   orphans, and ends when it is told to. With a number, it ends by itself after a second, with that exit code. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    sigset_t all;
    int signal;
    /* The first process of a pod gets only those signals that it waits for. */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    puts("started");
    fflush(stdout);
    if (count > 1)
        alarm(1);
    while (sigwait(&all, &signal) == 0) {
        switch (signal) {
        case SIGCHLD:
            while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
            break;
        case SIGALRM:
            return atoi(words[1]);
        case SIGTERM:
        case SIGINT:
            puts("told to end");
            return 0;
        }
    }
    return 1;
}
