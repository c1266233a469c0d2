use std::cell::RefCell;

/// How many are kept for each thread.
const MOST: usize = 16;

/// What a thread has used and may use again instead of allocating it. Requests and writes may end on another thread than they began
/// on: what is too much for one is freed, what another lacks is allocated.
#[derive(Debug)]
pub(crate) struct FreeList<T>(RefCell<Stack<T>>);

#[derive(Debug)]
struct Stack<T> {
    items: [Option<T>; MOST],
    len: usize,
}

impl<T> FreeList<T> {
    pub const fn new() -> Self {
        Self(RefCell::new(Stack { items: [const { None }; MOST], len: 0 }))
    }

    pub fn take(&self) -> Option<T> {
        let mut stack = self.0.borrow_mut();
        stack.len = stack.len.checked_sub(1)?;
        let last = stack.len;
        stack.items[last].take()
    }

    /// Keeps it for later; one too many is dropped.
    pub fn put(&self, item: T) {
        let mut stack = self.0.borrow_mut();
        let end = stack.len;
        if let Some(place) = stack.items.get_mut(end) {
            *place = Some(item);
            stack.len += 1;
        } else {
            drop(stack);
            drop(item);
        }
    }
}

impl<T> FreeList<Box<T>> {
    /// A box with a value: one that was used before, if there is one.
    pub fn boxed(&self, value: T) -> Box<T> {
        match self.take() {
            Some(mut used) => {
                *used = value;
                used
            }
            None => Box::new(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn what_was_put_is_taken_once() {
        let list = FreeList::new();
        assert_eq!(list.take(), None);
        (0..MOST + 4).for_each(|number| list.put(number));
        let taken: Vec<usize> = std::iter::from_fn(|| list.take()).collect();
        assert_eq!(taken, (0..MOST).rev().collect::<Vec<_>>());
    }

    #[test]
    fn a_box_is_used_again_and_has_the_new_value() {
        let list = FreeList::new();
        let (first, second) = (Rc::new(1), Rc::new(2));
        let used = list.boxed(Rc::clone(&first));
        let place: *const Rc<i32> = &raw const *used;
        list.put(used);
        let again = list.boxed(second);
        assert_eq!((&raw const *again, **again), (place, 2));
        assert_eq!(Rc::strong_count(&first), 1, "the old value is dropped");
    }
}
