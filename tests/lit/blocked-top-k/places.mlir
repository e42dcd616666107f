// RUN: %exla-opt %s --passes=blocked-top-k | filecheck %s
// RUN: %exla-opt %s --passes=blocked-top-k --target=gpu | filecheck %s --check-prefix=LEFT

// The place of the smallest element of a row is that in the first block that has it. Rows of 2,003 elements have 63
// blocks of 32, of which the last is filled up with what is never smallest, and read from where it still has 32.

// CHECK: stablehlo.compare NE, %arg0, %arg0, FLOAT
// CHECK: %[[NUMBERS:.*]] = stablehlo.select
// CHECK: %[[FILLED:.*]] = stablehlo.pad %[[NUMBERS]], %{{.*}}, low = [0, 0], high = [0, 13], interior = [0, 0]
// CHECK: %[[BLOCKS:.*]] = stablehlo.reshape %[[FILLED]] : (tensor<512x2016xi32>) -> tensor<512x63x32xi32>
// CHECK: %[[LEAST:.*]] = stablehlo.reduce(%[[BLOCKS]] init: %{{.*}}) applies stablehlo.minimum across dimensions = [2]
// CHECK: %[[FIRST:.*]]:2 = stablehlo.reduce(%[[LEAST]] init: %{{.*}}), (%{{.*}} init: %{{.*}}) across dimensions = [1]
// CHECK: %[[BEGIN:.*]] = stablehlo.multiply %[[FIRST]]#1
// CHECK: %[[READ:.*]] = stablehlo.minimum %[[BEGIN]]
// CHECK: "stablehlo.gather"(%arg0, %{{.*}}) {{.*}} slice_sizes = array<i64: 1, 32>
// CHECK: %[[FOUND:.*]]:2 = stablehlo.reduce(%{{.*}} init: %{{.*}}), (%{{.*}} init: %{{.*}}) across dimensions = [1] : (tensor<512x32xf32>, tensor<512x32xi32>
// CHECK: return %[[FOUND]]#1

// LEFT-NOT: stablehlo.gather

func.func @main(%x: tensor<512x2003xf32>) -> tensor<512xi32> {
  %places = stablehlo.iota dim = 1 : tensor<512x2003xi32>
  %worst = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.reduce(%x init: %worst), (%places init: %zero) across dimensions = [1] : (tensor<512x2003xf32>, tensor<512x2003xi32>, tensor<f32>, tensor<i32>) -> (tensor<512xf32>, tensor<512xi32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
    %1 = stablehlo.compare LT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %2 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.or %1, %2 : tensor<i1>
    %4 = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.compare LT, %i, %j, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %6 = stablehlo.and %4, %5 : tensor<i1>
    %7 = stablehlo.or %3, %6 : tensor<i1>
    %8 = stablehlo.select %3, %a, %b : tensor<i1>, tensor<f32>
    %9 = stablehlo.select %7, %i, %j : tensor<i1>, tensor<i32>
    stablehlo.return %8, %9 : tensor<f32>, tensor<i32>
  }
  return %0#1 : tensor<512xi32>
}
