//! Who may ask what.

use std::sync::Arc;

use super::users::{Role, User};
use crate::snapshot::JobState;

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing: it is for every client that reaches the server.
    Everybody,
    /// To read numbers about all jobs.
    Scrape,
    /// To see jobs.
    Observe,
    /// To change what a job may have, or end it.
    Steer,
    /// To choose who decides about all jobs.
    Operate,
    /// To have jobs run.
    Submit,
    /// To let a browser in.
    Enter,
    /// To say who the users are.
    Own,
}

/// Who sent a request.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    /// It was not asked.
    Anyone,
    /// Who knows the token for metrics.
    Scraper,
    /// A browser with a session that the owner opened, or this user.
    Browser(Option<Arc<User>>),
    /// A user with a token of their own.
    User(Arc<User>),
    /// Who comes by the socket, or knows the daemon's token.
    Owner,
}

impl Caller {
    /// Whether it may ask for what needs `access`; of jobs, only for [those that it sees](Caller::sees).
    pub(super) fn may(&self, access: Access) -> bool {
        use Access::{Enter, Everybody, Observe, Own, Scrape, Steer, Submit};
        // A session could be found in a browser; what runs on the machine is not submitted with one.
        let of_browsers = !matches!(access, Submit | Enter | Own);
        match self {
            Caller::Anyone => access == Everybody,
            Caller::Scraper => matches!(access, Everybody | Scrape),
            Caller::Browser(None) => of_browsers,
            Caller::Browser(Some(user)) => of_browsers && Caller::User(user.clone()).may(access),
            Caller::User(user) => match user.role {
                Role::Observe => matches!(access, Everybody | Observe | Enter),
                Role::Submit => matches!(access, Everybody | Observe | Enter | Steer | Submit),
                Role::Operate => access != Own,
            },
            Caller::Owner => true,
        }
    }

    /// The user, where it is not the owner.
    pub(super) fn user(&self) -> Option<&Arc<User>> {
        match self {
            Caller::User(user) | Caller::Browser(Some(user)) => Some(user),
            _ => None,
        }
    }

    /// Whether it sees a queue's jobs; without a name, those of the default one.
    pub(super) fn sees_queue(&self, queue: Option<&str>) -> bool {
        self.user().is_none_or(|user| user.sees(queue))
    }

    /// Whether it sees a job.
    pub(super) fn sees(&self, job: &JobState) -> bool {
        self.sees_queue(job.queue.as_deref())
    }

    /// Whether there are jobs that it does not see.
    pub(super) fn is_limited(&self) -> bool {
        self.user().is_some_and(|user| user.role != Role::Operate && user.queues.is_some())
    }

    /// It, in a sentence about what it did.
    pub(super) fn words(&self) -> String {
        self.user().map_or_else(|| "its user".into(), |user| format!("user {}", user.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By who asks, whether they may scrape, observe, steer, operate, submit, enter, own.
    #[test]
    fn each_role_may_what_it_says_and_no_browser_submits() {
        use Access::{Enter, Observe, Operate, Own, Scrape, Steer, Submit};
        let user = |role| Arc::new(User { name: "a".into(), role, queues: None, scripts: false });
        let browser = |role| Caller::Browser(Some(user(role)));
        let table = [
            (Caller::Anyone, "       "),
            (Caller::Scraper, "x      "),
            (Caller::Browser(None), "xxxx   "),
            (browser(Role::Observe), " x     "),
            (browser(Role::Submit), " xx    "),
            (browser(Role::Operate), "xxxx   "),
            (Caller::User(user(Role::Observe)), " x   x "),
            (Caller::User(user(Role::Submit)), " xx xx "),
            (Caller::User(user(Role::Operate)), "xxxxxx "),
            (Caller::Owner, "xxxxxxx"),
        ];
        for (caller, expected) in table {
            let all = [Scrape, Observe, Steer, Operate, Submit, Enter, Own];
            let may: String = all.map(|access| if caller.may(access) { 'x' } else { ' ' }).iter().collect();
            assert_eq!(may, expected, "{caller:?}");
            assert!(caller.may(Access::Everybody));
        }
    }
}
